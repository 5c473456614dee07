"""follow: what follows from one run for others: ends are told, runs that were called start, orphans are cancelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from rota.domain.errors import Conflict, NotFound
from rota.domain.states import Holder
from rota.domain.work import ErrorType
from rota.engine.advance import MAX_STARTS, start_turns
from rota.engine.cancel import cancel_run
from rota.engine.core import MAX_DEPTH, Core
from rota.engine.held import HeldEnd, finish_held
from rota.engine.record import note_run, record
from rota.engine.submit import RunRequest, submit
from rota.store import failures, kin, links, outcomes, outputs, workflow_runs
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.kin import EndedRun, Orphan, Untold
from rota.store.links import Listener
from rota.store.outputs import LeafOutputs
from rota.store.workflow_runs import Parent

BATCH = 100


async def follow(core: Core) -> int:
    """One round, each step in a transaction of its own; how much was done. The duty of any node, at any time."""
    async with core.follow_up.lock:
        done = 0
        for workflow_id in core.follow_up.take_workflows():
            done += await core.database.transact(partial(start_called, core, workflow_id=workflow_id))
        untold = await core.database.read(partial(kin.find_untold, limit=BATCH))
        if untold:
            done += await core.database.transact(partial(tell, core, untold=untold))
        for orphan in await core.database.read(partial(kin.find_orphans, limit=BATCH)):
            # Another node may have been faster.
            with suppress(Conflict, NotFound):
                await core.database.transact(partial(cancel_orphan, core, orphan=orphan))
                done += 1
        return done


async def start_called(core: Core, transaction: Transaction, workflow_id: str) -> int:
    """Starts runs of a workflow that other runs have called and for which there is a turn; how many."""
    changes = await start_turns(core, transaction, workflow_id)
    await record(core, transaction, changes)
    started = sum(change.entity_type == "workflow_run" and change.new_state == "running" for change in changes)
    if started >= MAX_STARTS:
        core.follow_up.soon(transaction, [workflow_id])
    return started


async def tell(core: Core, transaction: Transaction, untold: Sequence[Untold]) -> int:
    """Tells the ends of runs, each once: the task runs that wait for them end, and listening workflows start."""
    ids = [run.id for run in untold]
    # All that this transaction touches, in one order, before anything else is held.
    await workflow_runs.lock_runs(transaction, {*ids, *(run.parent_run_id for run in untold if run.parent_run_id)})
    ended = await kin.take_untold(transaction, ids)
    await _tell_callers(core, transaction, ended)
    await _tell_listeners(core, transaction, ended)
    return len(ended)


async def _tell_callers(core: Core, transaction: Transaction, ended: Sequence[EndedRun]) -> None:
    # There may be several of one task run: of each try one.
    called = {
        (run.parent_task_run_id, run.parent_attempt): run
        for run in ended
        if run.parent_task_run_id is not None and run.parent_attempt is not None
    }
    standings = await outcomes.read_standings(transaction, [key[0] for key in called]) if called else {}
    waiting = [
        (called[row.id, row.attempt], row)
        for row in standings.values()
        if row.holder == Holder.RUN and (row.id, row.attempt) in called
    ]
    if len(waiting) < len(called):
        await kin.end_calls(transaction, list(called))
    if not waiting:
        return
    tasks = await core.find_tasks(transaction, [row.task_id for _run, row in waiting])
    wanted = [run.id for run, row in waiting if run.status == "success" and tasks[row.task_id].spec.output != "none"]
    left = await outputs.read_leaf_outputs(transaction, wanted, core.options.max_output_bytes)
    failed = await failures.read_reasons(transaction, [run.id for run, _row in waiting if run.status == "failed"])
    ends = []
    for run, row in waiting:
        fault = _find_fault(run, left, failed, core)
        if fault is None:
            output = left.found.get(run.id)
            ends.append(HeldEnd(row.id, row.attempt, Holder.RUN, "success", output=output))
        else:
            reason = f"run {run.id} of workflow {tasks[row.task_id].document['workflow']} {fault[1]}"
            ends.append(HeldEnd(row.id, row.attempt, Holder.RUN, "failed", fault[0], reason))
    await finish_held(core, transaction, ends)


def _find_fault(
    run: EndedRun, left: LeafOutputs, failed: Mapping[str, str], core: Core
) -> tuple[ErrorType, str] | None:
    """Why the task run that has waited for this run fails, or None if it succeeds."""
    if run.id in left.too_large:
        return ErrorType.BAD_OUTPUT, f"left {_explain_size(left.too_large[run.id], core)}"
    if run.status == "success":
        return None
    if run.status == "failed":
        return ErrorType.RUN_FAILED, f"failed: {failed.get(run.id, 'nothing says why')}"
    if run.deadline_at and run.cancel_requested_at and run.cancel_requested_at >= run.deadline_at:
        return ErrorType.TIMEOUT, "took longer than it may"
    return ErrorType.RUN_CANCELLED, f"was cancelled: {run.cancel_reason or 'no reason given'}"


def _explain_size(size: int, core: Core) -> str:
    limit = core.options.max_output_bytes
    return (
        f"outputs of {size} characters of JSON and the limit is {limit}: let its last tasks return less, "
        f"or the name of a file"
    )


async def _tell_listeners(core: Core, transaction: Transaction, ended: Sequence[EndedRun]) -> None:
    listeners = await links.read_listeners(transaction, {run.workflow_id for run in ended}) if ended else []
    pairs = {
        (run.id, listener.workflow_id): (run, listener)
        for run in ended
        for listener in listeners
        if listener.source_id == run.workflow_id and listener.status in (run.status, "done")
    }
    if not pairs:
        return
    ids = sorted({run.id for run, _listener in pairs.values()})
    left = await outputs.read_leaf_outputs(transaction, ids, core.options.max_output_bytes)
    going: list[tuple[EndedRun, Listener]] = []
    changes: list[Change] = []
    for run, listener in pairs.values():
        reason = _find_obstacle(run, left, core)
        if reason is None:
            going.append((run, listener))
        else:
            changes.append(_note_refusal(run, listener, reason))
    requests = [await _request(core, transaction, run, listener, left.found[run.id]) for run, listener in going]
    answers = await submit(core, transaction, requests) if requests else []
    changes += [
        _note_refusal(run, listener, answer.refusal.detail)
        for (run, listener), answer in zip(going, answers, strict=True)
        if answer.refusal is not None
    ]
    await record(core, transaction, changes)


def _find_obstacle(run: EndedRun, left: LeafOutputs, core: Core) -> str | None:
    if run.depth >= MAX_DEPTH:
        return f"runs start one another {MAX_DEPTH} times in a row at most"
    if run.id in left.too_large:
        return f"the run left {_explain_size(left.too_large[run.id], core)}"
    return None


async def _request(
    core: Core, transaction: Transaction, run: EndedRun, listener: Listener, found: Mapping[str, Any]
) -> RunRequest:
    about = {
        "id": run.id,
        "workflow": listener.source_name,
        "status": run.status,
        "logical_date": run.logical_date.isoformat(),
    }
    params: dict[str, Any] = {"run": about, "outputs": found}
    version = await core.find_version(transaction, listener.version_id)
    if version is not None and version.params is not None:
        # It says what it takes: of these two, and of the outputs by their own names.
        params = {name: value for name, value in {**found, **params}.items() if name in version.params.params}
    return RunRequest(
        listener.workflow_id,
        trigger="run",
        logical_at=run.logical_date,
        params=params,
        version_id=listener.version_id,
        parent=Parent(run.id, run.depth + 1),
        tells_refusal=True,
    )


def _note_refusal(run: EndedRun, listener: Listener, reason: str) -> Change:
    details = {"event": "listener not started", "workflow_id": listener.workflow_id, "reason": reason}
    return note_run(run.id, run.namespace, run.status, run.status, details)


async def cancel_orphan(core: Core, transaction: Transaction, orphan: Orphan) -> None:
    """Passes a cancel down. Each in a transaction of its own: a cancel holds the run and then its workflow, and
    whoever holds a workflow waits for no run."""
    await cancel_run(core, transaction, orphan.id, orphan.reason or "the task run that waits for it was cancelled")
