"""Every endpoint says who may call it, and nobody else gets through."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from rota.api import app
from rota.api.permissions import find_need, needs
from rota.api.requests import LimitedRoute
from rota.api.sockets import SocketRoute
from rota.domain.access import GRANTS, Permission, Role, roles_with


async def nothing() -> None:
    """An endpoint that says nothing of its callers."""


def test_a_route_without_a_need_cannot_be_made():
    router = APIRouter(route_class=LimitedRoute)
    with pytest.raises(TypeError, match="@needs"):
        router.get("/x")(nothing)
    router.get("/x")(needs(Permission.VIEW)(lambda: None))


def test_a_route_that_checks_nobody_is_refused():
    router = APIRouter()
    router.get("/x")(nothing)
    with pytest.raises(TypeError, match="route_class=LimitedRoute"):
        app.require_need(router.routes[0])


def test_every_route_says_what_it_needs():
    routes = [route for part in app.PARTS for route in part.router.routes]
    assert len(routes) > 40
    for route in routes:
        assert isinstance(route, APIRoute | SocketRoute)
        assert find_need(route.endpoint).permission in Permission


def test_only_reading_is_for_viewers():
    """A call that changes something takes more than the role viewer; the few that only compute are named here."""
    computing = {"sign_in", "validate_workflow", "preview_schedule"}
    for part in app.PARTS:
        for route in part.router.routes:
            assert isinstance(route, APIRoute | SocketRoute)
            if set(route.methods or ()) - {"GET", "HEAD"} and route.name not in computing:
                assert find_need(route.endpoint).permission not in (Permission.VIEW, Permission.OPEN), route.name


def test_each_role_may_what_those_before_it_may():
    ordered = [Role.VIEWER, Role.OPERATOR, Role.EDITOR, Role.ADMIN]
    for less, more in pairwise(ordered):
        assert GRANTS[less] < GRANTS[more]
    assert roles_with(Permission.WORK) == [Role.ADMIN, Role.WORKER]
    assert GRANTS[Role.WORKER] == {Permission.OPEN, Permission.WORK}
