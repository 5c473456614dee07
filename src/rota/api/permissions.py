"""What each endpoint asks of its caller: declared right above the function, checked before anything else is read.

@router.post("/pools/{name}")
@needs(Permission.EDIT)
async def put_pool(...): ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rota.domain.access import Permission

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
_DECLARED = "__rota_need__"


@dataclass(frozen=True, slots=True)
class Need:
    """What an endpoint asks for."""

    permission: Permission
    # It concerns all namespaces at once: a key that is bound to some may not.
    is_everywhere: bool = False


def needs(permission: Permission, *, everywhere: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Declares what a caller must be allowed to, and whether in every namespace."""

    def declare(endpoint: Endpoint) -> Endpoint:
        # Workers execute the tasks of every namespace.
        setattr(endpoint, _DECLARED, Need(permission, everywhere or permission is Permission.WORK))
        return endpoint

    return declare


def find_need(endpoint: Callable[..., Any]) -> Need:
    """What the endpoint declared; raises TypeError if it did not."""
    need = getattr(endpoint, _DECLARED, None)
    if not isinstance(need, Need):
        raise TypeError(
            f"{endpoint.__module__}.{endpoint.__name__} does not say who may call it: write @needs(Permission.…) from "
            "rota.api.permissions between the route and the function (VIEW to read, OPERATE to run and cancel, EDIT to "
            "define, ADMINISTER for keys and cluster, WORK for workers, OPEN for probes)"
        )
    return need
