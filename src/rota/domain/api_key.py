"""API keys: what they look like, what is kept of them, and what a new one must say."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.domain.access import EVERY_NAMESPACE, Role
from rota.domain.errors import FieldError
from rota.domain.spec_names import check_namespace, check_workflow_name

KEY_PREFIX = "rota_"
# So much of a key is kept readable: it tells keys apart, and is of no use to anybody.
SHOWN_CHARACTERS = 12
NOISE_BYTES = 32
# The names of callers without a key of their own.
RESERVED_NAMES = frozenset({"local", "token"})


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that is wanted."""

    name: str
    role: Role
    namespaces: tuple[str, ...] = (EVERY_NAMESPACE,)
    # None: it does not expire.
    expires_in_seconds: float | None = None


def write_key(noise: bytes) -> str:
    """The key that this randomness (NOISE_BYTES of it) makes."""
    return KEY_PREFIX + base64.urlsafe_b64encode(noise).decode().rstrip("=")


def hash_secret(secret: str) -> str:
    """What is kept of a key or another token, which is random: a slow hash would add nothing."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def check_new_key(key: NewKey) -> list[FieldError]:
    """What is wrong with it."""
    return [FieldError(*fault) for fault in (*_check_name(key.name), *_check_namespaces(key))]


def _check_name(name: str) -> Iterator[tuple[str, str]]:
    fault = check_workflow_name(name) if name else "must not be empty"
    if name in RESERVED_NAMES:
        fault = f"{name} stands for callers without a key of their own: choose another name"
    if fault is not None:
        yield "name", fault


def _check_namespaces(key: NewKey) -> Iterator[tuple[str, str]]:
    if not key.namespaces:
        yield "namespaces", 'expected at least one namespace, or "*" for all'
    if EVERY_NAMESPACE in key.namespaces and len(key.namespaces) > 1:
        yield "namespaces", 'expected either names, or "*" alone for all'
    faults = {place: check_namespace(name) for place, name in enumerate(key.namespaces) if name != EVERY_NAMESPACE}
    yield from ((f"namespaces[{place}]", fault) for place, fault in faults.items() if fault is not None)
    if key.role is Role.WORKER and list(key.namespaces) != [EVERY_NAMESPACE]:
        yield "namespaces", 'a worker executes the tasks of every namespace: send ["*"], or leave it out'


def describe_namespaces(namespaces: Sequence[str]) -> str:
    """For people."""
    return "every namespace" if EVERY_NAMESPACE in namespaces else ", ".join(namespaces)
