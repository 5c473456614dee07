"""approve: asks a person, and takes the decision; one decision wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.errors import Conflict, Forbidden, NotFound
from rota.domain.spec import TaskSpec
from rota.domain.states import Holder
from rota.domain.work import ErrorType
from rota.engine.core import Core, GateReport, ReadyTask
from rota.engine.gate import start_held
from rota.engine.held import HeldEnd, decide_held, finish_held
from rota.store import approvals, workflow_runs
from rota.store.approvals import ApprovalRow
from rota.store.database import Transaction
from rota.store.encoding import clean_text
from rota.store.gates import DueRow, Hold
from rota.store.outcomes import Outcome
from rota.store.schedules import read_now

MAX_MESSAGE_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decides, or what the deadline did (`by` is None then). `decision` is approved, rejected, skipped or
    expired. It becomes the task's output."""

    decision: str
    by: str | None
    reason: str
    at: datetime

    def tell(self, form: str) -> Any:
        """As the task's `output` has it."""
        if form == "none":
            return None
        return self.decision if form == "text" else self.facts | {"at": self.at.isoformat()}

    @property
    def facts(self) -> dict[str, Any]:
        return {"decision": self.decision, "by": self.by, "reason": self.reason}


async def start_approvals(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    """Holds each until somebody decides, or its deadline or timeout has come."""
    return await start_held(transaction, ready, _make_hold)


def _make_hold(item: ReadyTask, document: Mapping[str, Any]) -> Hold:
    asked = document["approval"]
    bounds = [bound for bound in (asked.get("deadline_seconds"), item.task.spec.timeout_seconds) if bound]
    waiting_for = {
        "message": asked.get("message", "")[:MAX_MESSAGE_CHARACTERS],
        "approvers": asked.get("approvers", []),
        "on_deadline": asked.get("on_deadline", "fail"),
    }
    return Hold(item.row.id, Holder.APPROVAL, due_seconds=min(bounds, default=None), waiting_for=waiting_for)


async def decide_approval(
    core: Core, transaction: Transaction, task_run_id: str, *, is_approved: bool, by: str, reason: str = ""
) -> Decision:
    """Approves or rejects. Raises Conflict unless it is open, Forbidden if `by` is not among those who may."""
    found = await approvals.find_approval(transaction, task_run_id)
    if found is None:
        raise NotFound(f"there is no task run {task_run_id}")
    await workflow_runs.lock_runs(transaction, [found.run_id])
    row = await approvals.find_approval(transaction, task_run_id)
    if row is None or row.holder != Holder.APPROVAL:
        raise Conflict(_explain_closed(row or found))
    if not may_decide(row.waiting_for, by):
        names = ", ".join(row.waiting_for["approvers"])
        raise Forbidden(f"{by} may not decide about task run {task_run_id}: only {names} may")
    decision = Decision("approved" if is_approved else "rejected", by, clean_text(reason), row.now)
    task = (await core.find_tasks(transaction, [row.task_id]))[row.task_id]
    if not await finish_held(core, transaction, [_end(row, task.spec, decision)]):
        raise Conflict(f"task run {task_run_id} was decided by somebody else meanwhile")
    return decision


def may_decide(waiting_for: Mapping[str, Any], name: str) -> bool:
    """Whether somebody of this name may decide. Where nobody is named, everybody may who may operate runs."""
    return not waiting_for["approvers"] or name in waiting_for["approvers"]


def _explain_closed(row: ApprovalRow) -> str:
    if row.kind != "approval":
        return f"task run {row.id} is no approval: there is nothing to decide"
    told = row.output if isinstance(row.output, Mapping) else {}
    if told.get("by") and row.status != "running":
        return f"task run {row.id} was {told['decision']} by {told['by']} already"
    return f"task run {row.id} is {row.status}: only an open approval can be decided"


_STATUSES = {"approved": "success", "rejected": "failed", "skipped": "skipped", "expired": "failed"}
_ERROR_TYPES = {"rejected": ErrorType.REJECTED, "expired": ErrorType.TIMEOUT}


def _end(row: ApprovalRow | DueRow, spec: TaskSpec, decision: Decision) -> HeldEnd:
    error: str | None = decision.reason
    if decision.by is not None:
        error = f"rejected by {decision.by}" + (f": {decision.reason}" if decision.reason else "")
    if decision.decision == "approved":
        error = None
    return HeldEnd(
        row.id,
        row.attempt,
        Holder.APPROVAL,
        _STATUSES[decision.decision],
        _ERROR_TYPES.get(decision.decision),
        error,
        decision.tell(spec.output),
        decision.facts,
    )


async def end_approvals(core: Core, transaction: Transaction, due: Sequence[DueRow]) -> Sequence[Outcome]:
    """Does at their deadlines what their definitions say. A timeout that comes first fails them."""
    tasks = await core.find_tasks(transaction, [row.task_id for row in due])
    now = await read_now(transaction)
    specs = [tasks[row.task_id].spec for row in due]
    ends = [_end(row, spec, _expire(spec, now)) for row, spec in zip(due, specs, strict=True)]
    return await decide_held(core, transaction, ends)


_AT_DEADLINE = {"fail": "expired", "approve": "approved", "skip": "skipped"}


def _expire(spec: TaskSpec, now: datetime) -> Decision:
    asked = spec.action["approval"]
    deadline_seconds = asked.get("deadline_seconds")
    if deadline_seconds is None or (spec.timeout_seconds or deadline_seconds) < deadline_seconds:
        return Decision("expired", None, f"nobody decided within {spec.timeout_seconds:g} seconds (its timeout)", now)
    word = _AT_DEADLINE[asked.get("on_deadline", "fail")]
    return Decision(word, None, f"nobody decided within {deadline_seconds:g} seconds", now)
