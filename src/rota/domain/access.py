"""Who may do what: roles, what a call asks for, and the principal that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

EVERY_NAMESPACE = "*"


class Permission(StrEnum):
    """What a call asks for. Every endpoint declares one."""

    OPEN = "open"  # nobody needs to be known: probes, pages without data
    SIGNED_IN = "signed_in"  # any key will do: what concerns the caller alone
    VIEW = "view"  # read
    OPERATE = "operate"  # run, cancel, retry, pause: what is defined stays as it is
    EDIT = "edit"  # define, change, delete
    ADMINISTER = "administer"  # keys, audit, the cluster
    WORK = "work"  # the worker protocol


class Role(StrEnum):
    """What a key is for. The first four each may do all that those before them may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"
    WORKER = "worker"


_ANYBODY = frozenset({Permission.OPEN, Permission.SIGNED_IN})
_VIEWER = _ANYBODY | {Permission.VIEW}
_OPERATOR = _VIEWER | {Permission.OPERATE}
_EDITOR = _OPERATOR | {Permission.EDIT}
GRANTS: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.EDITOR: _EDITOR,
    Role.ADMIN: _EDITOR | {Permission.ADMINISTER, Permission.WORK},
    # Nothing but the protocol: a worker's key lies on many machines.
    Role.WORKER: frozenset({Permission.OPEN, Permission.WORK}),
}


def roles_with(permission: Permission) -> list[Role]:
    """The roles that have this permission, the least of them first."""
    return [role for role in Role if permission in GRANTS[role]]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a call. `name` is what audit log and approvals call it."""

    name: str
    role: Role
    namespaces: tuple[str, ...] = field(default=(EVERY_NAMESPACE,))
    # How it is known: `local`, `token`, `key` or `jwt`.
    kind: str = "local"
    # Of the key that was shown.
    key_hash: str | None = field(default=None, repr=False)
    # When what was shown ends by itself, where that is known.
    expires_at: datetime | None = None

    def may(self, permission: Permission) -> bool:
        return permission in GRANTS[self.role]

    @property
    def is_everywhere(self) -> bool:
        """Whether it is let into every namespace."""
        return EVERY_NAMESPACE in self.namespaces

    def sees(self, namespace: str) -> bool:
        return self.is_everywhere or namespace in self.namespaces
