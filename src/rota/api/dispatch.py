"""Finding the endpoint of an address by its parts, at a cost that does not grow with the number of endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send


class Endpoint(NamedTuple):
    """What serves an address."""

    app: ASGIApp
    route: Any
    parameters: tuple[str, ...]


@dataclass(slots=True)
class _Place:
    """A place in the tree of addresses: what follows on a word, what follows on anything, and what is here."""

    words: dict[str, _Place] = field(default_factory=dict)
    anything: _Place | None = None
    by_method: dict[str, Endpoint] = field(default_factory=dict)


class Dispatcher:
    """Hands each request to its endpoint; what it does not know goes to the framework's own router, which is slower."""

    def __init__(self, router: Router, routes: Iterable[Any]) -> None:
        self._fallback = router.app
        self._root = _Place()
        for route in routes:
            # What only the framework understands stays with it.
            if getattr(route, "methods", None) and ":" not in route.path:
                self._add(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.find(scope["path"], scope["method"]) if scope["type"] == "http" else None
        if found is None:
            await self._fallback(scope, receive, send)
            return
        endpoint, scope["path_params"] = found
        scope["route"] = endpoint.route
        scope["endpoint"] = endpoint.route.endpoint
        await endpoint.app(scope, receive, send)

    def find(self, path: str, method: str) -> tuple[Endpoint, dict[str, str]] | None:
        """The endpoint of an address, with the values of its parameters."""
        values: list[str] = []
        found = _find(self._root, path.split("/"), 1, method, values)
        return None if found is None else (found, dict(zip(found.parameters, reversed(values), strict=True)))

    def _add(self, route: Any) -> None:
        place = self._root
        names: list[str] = []
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                names.append(part[1:-1])
                place.anything = place.anything or _Place()
                place = place.anything
            else:
                place = place.words.setdefault(part, _Place())
        for method in route.methods:
            # As in the framework, the route that was added first counts.
            place.by_method.setdefault(method, Endpoint(route.app, route.original_route, tuple(names)))


def _find(place: _Place, parts: Sequence[str], depth: int, method: str, values: list[str]) -> Endpoint | None:
    """The endpoint of the parts from `depth` on, and the values of its parameters, the last one first.

    A word goes before a parameter, which takes what no word fits.
    """
    if depth == len(parts):
        return place.by_method.get(method)
    below = place.words.get(parts[depth])
    found = None if below is None else _find(below, parts, depth + 1, method, values)
    if found is None and place.anything is not None and parts[depth]:
        found = _find(place.anything, parts, depth + 1, method, values)
        if found is not None:
            values.append(parts[depth])
    return found
