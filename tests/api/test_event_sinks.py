"""How event sinks are doing."""

from __future__ import annotations

from rota.store import sinks
from tests.api.server import Server


async def test_a_failing_sink_is_shown_and_enabled_again(server: Server):
    assert (await server.get("/event-sinks"))["items"] == []
    await server.database.transact(lambda tx: sinks.add_sink(tx, "redis", 4))
    await server.database.transact(lambda tx: sinks.add_sink(tx, "redis", 9))
    for patience in (1000.0, -1.0):
        seconds = patience
        await server.database.transact(lambda tx, s=seconds: sinks.note_failure(tx, "redis", "away", give_up_seconds=s))  # type: ignore[misc]
    (shown,) = (await server.get("/event-sinks"))["items"]
    assert (shown["seq"], shown["failures"], shown["error"]) == (4, 2, "away")
    assert shown["disabled_at"] is not None
    enabled = await server.post("/event-sinks/redis/enable")
    assert (enabled["failures"], enabled["disabled_at"], enabled["seq"]) == (0, None, 4)
    await server.database.transact(lambda tx: sinks.move_sink(tx, "redis", 7))
    assert (await server.get("/event-sinks"))["items"][0]["error"] is None


async def test_an_unknown_sink_is_not_found(server: Server):
    assert (await server.call("POST", "/event-sinks/nowhere/enable")).status == 404
