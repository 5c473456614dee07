"""Approvals: who may decide, until when, what happens then; and that one decision wins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.domain.errors import Conflict, Forbidden, NotFound
from tests.engine.stage import START, Stage, open_node, task

NOWHERE = "01890a5d-ac96-774b-bcce-b302099a8057"


def _ask(**fields: Any) -> dict[str, Any]:
    return {"approval": {"message": "Ship {{ params.what }}?", **fields}}


async def _start(stage: Stage, *others: dict[str, Any], fields: dict[str, Any] | None = None, **asked: Any) -> Any:
    """A run that has come to its approval; (run id, task run id)."""
    gate = task("gate", "a", **_ask(**asked), **(fields or {}))
    workflow_id = await stage.define(task("a"), gate, task("b", "gate"), *others)
    run_id = await stage.submit(workflow_id, params={"what": "it"})
    await stage.work(await stage.register())
    return run_id, await stage.task_run_id(run_id, "gate")


async def _decide(stage: Stage, task_run_id: str, word: str = "approve", by: str = "ann", reason: str = "") -> Any:
    return await stage.engine.decide_approval(task_run_id, is_approved=word == "approve", by=by, reason=reason)


async def test_a_person_approves_and_what_follows_goes_on(stage: Stage):
    run_id, task_run_id = await _start(stage, approvers=["ann", "bob"], deadline_seconds=60)
    row = (await stage.task_rows(run_id))["gate"]
    assert (row.status, row.holder, row.worker_id) == ("running", "approval", None)
    assert row.waiting_for == {"message": "Ship it?", "approvers": ["ann", "bob"], "on_deadline": "fail"}
    found = await stage.engine.explain_task_run(task_run_id)
    assert (found.code, found.sentence) == (
        "waiting_for_approval",
        "ann or bob has to approve or reject it: Ship it?",
    )
    assert found.next_check_at is not None
    assert (found.next_check_at - stage.clock.now).total_seconds() == 60
    await _decide(stage, task_run_id, by="bob", reason="tests are green\0")
    row = (await stage.task_rows(run_id))["gate"]
    reason = "tests are green\ufffd"
    told = {"decision": "approved", "by": "bob", "reason": reason}
    assert (row.status, row.error, row.output) == ("success", None, told | {"at": START.isoformat()})
    assert (await stage.history(task_run_id))[-1] == ("running", "success", {"attempt": 1, **told})
    assert await stage.work(await stage.register()) == ["b"]
    assert await stage.run_status(run_id) == "success"


async def test_a_person_rejects(stage: Stage):
    told = task("tell", "gate", trigger_rule="one_failed", command="echo {{ tasks.gate.output.reason }}")
    run_id, task_run_id = await _start(stage, told, fields={"retry_count": 3})
    await _decide(stage, task_run_id, "reject", reason="too early")
    row = (await stage.task_rows(run_id))["gate"]
    assert (row.status, row.error_type, row.error) == ("failed", "rejected", "rejected by ann: too early")
    assert row.output["decision"] == "rejected"
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    assert item.spec["command"] == "echo 'too early'"
    await stage.finish(worker, [item])
    # It was asked, answered, and handled.
    assert await stage.run_status(run_id) == "success"


async def test_only_those_who_are_named_may_decide(stage: Stage):
    run_id, task_run_id = await _start(stage, approvers=["ann"])
    with pytest.raises(Forbidden, match=r"eve may not decide .* only ann may"):
        await _decide(stage, task_run_id, by="eve")
    assert (await stage.statuses(run_id))["gate"] == "running"
    await _decide(stage, task_run_id, by="ann")
    with pytest.raises(Conflict, match="approved by ann already"):
        await _decide(stage, task_run_id, "reject", by="ann")


async def test_what_is_no_open_approval_cannot_be_decided(stage: Stage):
    run_id, task_run_id = await _start(stage)
    with pytest.raises(NotFound):
        await _decide(stage, NOWHERE)
    with pytest.raises(Conflict, match="is no approval"):
        await _decide(stage, await stage.task_run_id(run_id, "a"))
    await stage.engine.cancel_run(run_id)
    assert await stage.run_status(run_id) == "cancelled"
    with pytest.raises(Conflict, match="is cancelled: only an open approval"):
        await _decide(stage, task_run_id)


@pytest.mark.parametrize(
    ("word", "status", "decision", "run_status"),
    [
        ("fail", "failed", "expired", "failed"),
        ("approve", "success", "approved", "success"),
        ("skip", "skipped", "skipped", "success"),
    ],
)
async def test_the_deadline_decides_when_nobody_does(
    stage: Stage, word: str, status: str, decision: str, run_status: str
):
    run_id, task_run_id = await _start(stage, deadline_seconds=60, on_deadline=word)
    stage.clock.advance(59)
    assert await stage.engine.serve_due() == 0
    stage.clock.advance(2)
    assert await stage.engine.serve_due() == 1
    row = (await stage.task_rows(run_id))["gate"]
    facts = {"decision": decision, "by": None, "reason": "nobody decided within 60 seconds"}
    assert row.status == status
    assert {name: row.output[name] for name in facts} == facts
    assert (await stage.history(task_run_id))[-1][2].items() >= facts.items()
    await stage.work(await stage.register())
    assert await stage.run_status(run_id) == run_status
    with pytest.raises(Conflict):
        await _decide(stage, task_run_id)


async def test_a_timeout_that_comes_first_fails_it(stage: Stage):
    run_id, _id = await _start(stage, deadline_seconds=60, on_deadline="approve", fields={"timeout_seconds": 20})
    stage.clock.advance(21)
    assert await stage.engine.serve_due() == 1
    row = (await stage.task_rows(run_id))["gate"]
    assert (row.status, row.error_type, row.error) == (
        "failed",
        "timeout",
        "nobody decided within 20 seconds (its timeout)",
    )


async def test_a_retry_asks_anew(stage: Stage):
    run_id, task_run_id = await _start(stage, deadline_seconds=60)
    await _decide(stage, task_run_id, "reject")
    stage.clock.advance(100)
    await stage.engine.retry_run(run_id)
    row = (await stage.task_rows(run_id))["gate"]
    assert (row.status, row.attempt, (row.due_at - stage.clock.now).total_seconds()) == ("running", 2, 60)
    await _decide(stage, task_run_id)
    assert (await stage.statuses(run_id))["b"] == "queued"


async def test_approvers_may_come_from_the_run(stage: Stage):
    _run_id, task_run_id = await _start(stage, approvers=["{{ params.what }}"])
    with pytest.raises(Forbidden):
        await _decide(stage, task_run_id, by="ann")
    await _decide(stage, task_run_id, by="it")


async def test_a_message_that_cannot_be_rendered_fails_the_task(stage: Stage):
    run_id = await stage.start(task("gate", approval={"message": "{{ params.what }}"}), task("b", "gate"))
    row = (await stage.task_rows(run_id))["gate"]
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert "a template cannot be rendered" in row.error
    assert await stage.run_status(run_id) == "failed"


async def test_without_output_only_the_history_knows(stage: Stage):
    run_id, task_run_id = await _start(stage, fields={"output": "none"})
    await _decide(stage, task_run_id, reason="fine")
    assert (await stage.task_rows(run_id))["gate"].output is None
    assert (await stage.history(task_run_id))[-1][2]["reason"] == "fine"


async def test_one_decision_wins(stage: Stage):
    """Eight people on two nodes, a deadline and a cancel at the same moment."""
    async with open_node(stage.url, stage.clock) as other:
        for _ in range(5):
            run_id, task_run_id = await _start(stage, deadline_seconds=60)
            stage.clock.advance(61)
            barrier = asyncio.Barrier(10)

            async def decide(number: int, task_run_id: str = task_run_id, barrier: Any = barrier) -> Any:
                engine = (stage.engine, other.engine)[number % 2]
                await barrier.wait()
                return await engine.decide_approval(task_run_id, is_approved=number < 4, by=f"p{number}")

            async def let_it_expire(barrier: Any = barrier) -> None:
                await barrier.wait()
                await other.engine.serve_due()

            async def cancel(task_run_id: str = task_run_id, barrier: Any = barrier) -> None:
                await barrier.wait()
                await stage.engine.cancel_task_run(task_run_id)

            results = await asyncio.gather(
                *(decide(number) for number in range(8)), let_it_expire(), cancel(), return_exceptions=True
            )
            won = [result for result in results[:8] if not isinstance(result, BaseException)]
            assert all(isinstance(result, Conflict) for result in results[:8] if result not in won)
            row = (await stage.task_rows(run_id))["gate"]
            ends = [entry for entry in await stage.history(task_run_id) if entry[0] == "running"]
            assert len(ends) == 1
            assert len(won) == (row.status in ("success", "failed") and row.error_type != "timeout")
            if won:
                assert (row.output["by"], row.output["decision"]) == (won[0].by, won[0].decision)
