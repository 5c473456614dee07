"""What the engine does itself: how it starts what no worker executes, and what it does when the time has come."""

from __future__ import annotations

from collections.abc import Mapping

from rota.domain.states import Holder
from rota.engine import approve, expand, gate, subflow, waits
from rota.engine.core import DueHandler, Starter

STARTERS: Mapping[str, Starter] = {
    gate.MAP: expand.start_maps,
    "wait": waits.start_waits,
    "approval": approve.start_approvals,
    "workflow": subflow.start_calls,
}
DUE_HANDLERS: Mapping[str, DueHandler] = {Holder.WAIT: waits.end_waits, Holder.APPROVAL: approve.end_approvals}
