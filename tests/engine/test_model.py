"""The engine against the pure domain: random graphs, rules, failures, cancels, losses and retries, step by step.

After every step the states in the database are those that `rota.domain` says, and every invariant holds.
`ROTA_MODEL_EXAMPLES=5000` runs for longer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rota.domain.errors import Conflict
from rota.domain.graph import Graph, build_graph, propagate
from rota.domain.rules import TriggerRule
from rota.domain.states import TASK_FINAL, TaskState
from rota.domain.work import Assignment, AttemptKey, Finished, WorkerIdentity
from rota.engine.engine import Engine
from tests.engine.invariants import find_faults
from tests.engine.stage import LEASE_SECONDS, Clock, Stage, open_stage, task

EXAMPLES = int(os.environ.get("ROTA_MODEL_EXAMPLES", "60"))
NAMES = "abcdefgh"
WAITING = (TaskState.PENDING, TaskState.QUEUED, TaskState.RETRYING)
_number = itertools.count()


@st.composite
def task_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    count = draw(st.integers(1, len(NAMES)))
    # Only clean-up may wait for clean-up, so it comes last.
    first_teardown = count - draw(st.sampled_from((0, 0, 1, 2)))
    for place in range(count):
        upstreams = [name for name in NAMES[:place] if draw(st.integers(0, 2)) == 0]
        fields: dict[str, Any] = {
            "retry_count": draw(st.sampled_from((0, 0, 1, 2))),
            "retry_delay_seconds": draw(st.sampled_from((0, 7))),
            "max_deliveries": draw(st.sampled_from((1, 2))),
            "on_lost": draw(st.sampled_from(("retry", "retry", "fail"))),
        }
        if place and place >= first_teardown:
            fields["teardown"] = True
        else:
            fields["trigger_rule"] = str(draw(st.sampled_from(TriggerRule)))
        items.append(task(NAMES[place], *upstreams, **fields))
    return items


class Run:
    """What the domain expects of one run."""

    def __init__(self, run_id: str, items: list[dict[str, Any]]) -> None:
        self.id = run_id
        self.items = {item["name"]: item for item in items}
        self.graph: Graph = build_graph(
            self.items, {name: item.get("depends_on", ()) for name, item in self.items.items()}
        )
        self.teardown = {name for name, item in self.items.items() if item.get("teardown")}
        self.rules = {
            name: TriggerRule.ALL_DONE if name in self.teardown else TriggerRule(item["trigger_rule"])
            for name, item in self.items.items()
        }
        self.states = dict.fromkeys(self.items, TaskState.PENDING)
        self.tries = dict.fromkeys(self.items, 0)
        self.losses = dict.fromkeys(self.items, 0)
        self.asked: set[str] = set()
        self.is_started = False
        self.is_cancelling = False

    @property
    def is_open(self) -> bool:
        return any(state not in TASK_FINAL for state in self.states.values())

    def start(self) -> None:
        self.is_started = True
        self.settle()

    def settle(self) -> None:
        """Everything that follows from the states, by the pure rules."""
        if self.is_started:
            self.states |= propagate(self.graph, self.rules, self.states)

    def end(self, name: str, status: str) -> None:
        """An attempt has ended like this; what becomes of its task run?"""
        item = self.items[name]
        if status in ("success", "skipped"):
            self.states[name] = TaskState(status)
        elif name in self.asked:
            self.states[name] = TaskState.CANCELLED
        elif status == "cancelled":
            self.lose(name, may_fail=False)
        else:
            self.tries[name] += 1
            is_again = self.tries[name] <= item["retry_count"]
            later = TaskState.RETRYING if item["retry_delay_seconds"] else TaskState.QUEUED
            self.states[name] = later if is_again else TaskState.FAILED

    def lose(self, name: str, *, may_fail: bool = True) -> None:
        """Its worker is gone."""
        item = self.items[name]
        self.losses[name] += 1
        is_over = self.losses[name] >= item["max_deliveries"] or (may_fail and item["on_lost"] == "fail")
        self.states[name] = TaskState.FAILED if is_over else TaskState.QUEUED
        if name in self.asked:
            self.states[name] = TaskState.CANCELLED

    def cancel(self) -> None:
        self.is_started = self.is_cancelling = True
        for name in self.items.keys() - self.teardown:
            if self.states[name] in WAITING:
                self.states[name] = TaskState.CANCELLED
            elif self.states[name] is TaskState.RUNNING:
                self.asked.add(name)
        self.settle()

    def cancel_task(self, name: str) -> None:
        if self.states[name] is TaskState.RUNNING:
            self.asked.add(name)
        else:
            self.states[name] = TaskState.CANCELLED
        self.settle()

    def retry(self, names: set[str]) -> None:
        below = list(names)
        while below:
            for place in self.graph.downstream[self.graph.positions[below.pop()]]:
                child = self.graph.names[place]
                if self.states[child] is TaskState.UPSTREAM_FAILED:
                    self.states[child] = TaskState.PENDING
                    below.append(child)
        for name in names:
            self.states[name] = TaskState.QUEUED
            self.tries[name] = self.losses[name] = 0
            self.asked.discard(name)
        self.is_cancelling = False
        self.settle()


class EngineMachine(RuleBasedStateMachine):
    """Two runs of one workflow, of which one has to wait for the other."""

    stage: Stage
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        # A queue of its own keeps the examples apart, which share one database.
        self.queue = f"q{next(_number)}"
        self.runs: list[Run] = []
        self.held: dict[str, tuple[Assignment, Run]] = {}
        self.workflow_id = ""
        self.worker: WorkerIdentity = self.do(self.stage.register(queues=(self.queue,)))

    def do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    @property
    def engine(self) -> Engine:
        return self.stage.engine

    @initialize(items=task_lists(), limit=st.sampled_from((0, 1)))
    def begin(self, items: list[dict[str, Any]], limit: int) -> None:
        items = [{**item, "queue": self.queue} for item in items]
        self.workflow_id = self.do(self.stage.define(*items, name=self.queue, max_active_runs=limit))
        self.limit = limit
        for _ in range(2):
            self.runs.append(Run(self.do(self.stage.submit(self.workflow_id)), items))
        self.give_turns()

    def give_turns(self) -> None:
        for run in self.runs:
            active = sum(other.is_started and other.is_open for other in self.runs)
            if not run.is_started and (not self.limit or active < self.limit):
                run.start()

    # --- steps ------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        queued = sum(state is TaskState.QUEUED for run in self.runs for state in run.states.values())
        items = self.do(self.stage.claim(self.worker, limit))
        assert len(items) == min(limit, queued)
        for item in items:
            run = next(run for run in self.runs if run.id == item.run_id)
            assert run.states[item.task] is TaskState.QUEUED
            assert item.try_number == run.tries[item.task] + 1
            run.states[item.task] = TaskState.RUNNING
            self.held[item.task_run_id] = (item, run)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True, min_size=1, max_size=3), "ended")
        ends = []
        for task_run_id in chosen:
            item, run = self.held.pop(task_run_id)
            status = data.draw(
                st.sampled_from(("success", "success", "failed", "failed", "cancelled", "skipped")), item.task
            )
            ends.append(Finished(task_run_id, item.attempt, status, error_type="exit_code"))
            run.end(item.task, status)
        for run in self.runs:
            run.settle()
        # Every result twice: the second is late.
        results = self.do(self.engine.report(self.worker, [*ends, *ends])).results
        assert [result.code for result in results] == ["ok"] * len(ends) + ["late"] * len(ends)
        self.give_turns()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lose_some(self, data: st.DataObject) -> None:
        """The worker forgets some of its attempts; the others are renewed in time."""
        lost = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1), "lost")
        kept = [AttemptKey(key, item.attempt) for key, (item, _run) in sorted(self.held.items()) if key not in lost]
        self.stage.clock.advance(LEASE_SECONDS - 1)
        reply = self.do(self.engine.renew(self.worker, kept))
        assert reply.lost == ()
        assert {key.task_run_id for key in reply.cancel} == {
            key for key, (item, run) in self.held.items() if key not in lost and item.task in run.asked
        }
        self.stage.clock.advance(2)
        assert self.do(self.engine.reap_attempts()) == len(lost)
        for key in lost:
            item, run = self.held.pop(key)
            run.lose(item.task)
        for run in self.runs:
            run.settle()
        self.give_turns()

    @rule()
    def leave(self) -> None:
        self.do(self.engine.leave(self.worker))
        for item, run in self.held.values():
            run.states[item.task] = TaskState.CANCELLED if item.task in run.asked else TaskState.QUEUED
        self.held.clear()
        self.worker = self.do(self.stage.register(queues=(self.queue,)))
        for run in self.runs:
            run.settle()
        self.give_turns()

    @rule()
    def wait_for_retries(self) -> None:
        keys = [AttemptKey(key, item.attempt) for key, (item, _run) in self.held.items()]
        self.stage.clock.advance(8)
        self.do(self.engine.renew(self.worker, keys))
        due = sum(state is TaskState.RETRYING for run in self.runs for state in run.states.values())
        assert self.do(self.engine.release_due()) == due
        for run in self.runs:
            for name, state in run.states.items():
                if state is TaskState.RETRYING:
                    run.states[name] = TaskState.QUEUED

    @rule(place=st.integers(0, 1))
    def cancel_run(self, place: int) -> None:
        run = self.runs[place]
        if not run.is_open:
            return
        self.do(self.engine.cancel_run(run.id))
        run.cancel()
        self.give_turns()

    @rule(data=st.data(), place=st.integers(0, 1))
    def cancel_task_run(self, data: st.DataObject, place: int) -> None:
        run = self.runs[place]
        name = data.draw(st.sampled_from(sorted(run.items)), "task")
        call = self.engine.cancel_task_run(self.do(self.stage.task_run_id(run.id, name)))
        if not run.is_started or run.states[name] in TASK_FINAL - {TaskState.CANCELLED}:
            with pytest.raises(Conflict):
                self.do(call)
            return
        self.do(call)
        run.cancel_task(name)
        self.give_turns()

    @rule(data=st.data(), place=st.integers(0, 1))
    def retry(self, data: st.DataObject, place: int) -> None:
        run = self.runs[place]
        failed = sorted(name for name, state in run.states.items() if state is TaskState.FAILED)
        is_allowed = failed and not (run.is_cancelling and run.is_open) and self.status(run) in ("running", "failed")
        if not is_allowed:
            with pytest.raises(Conflict):
                self.do(self.engine.retry_run(run.id))
            return
        chosen = data.draw(st.sets(st.sampled_from(failed), min_size=1), "retried")
        ids = [self.do(self.stage.task_run_id(run.id, name)) for name in sorted(chosen)]
        self.do(self.engine.retry_run(run.id, ids))
        run.retry(chosen)
        self.give_turns()

    def status(self, run: Run) -> str:
        return str(self.do(self.stage.run_status(run.id)))

    @rule()
    def restart(self) -> None:
        """A node that starts anew knows nothing but what is in the database."""
        self.stage.node.engine = Engine(self.stage.database, self.stage.engine._core.options)

    # --- what holds -------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        for run in self.runs:
            assert self.do(self.stage.statuses(run.id)) == run.states
        faults = self.do(find_faults(self.stage.database, [self.workflow_id]))
        assert not faults, faults

    def teardown(self) -> None:
        """Whatever has happened, a good worker and time bring everything to its end."""
        if not self.runs:
            return
        self.leave()
        for _ in range(20):
            self.do(self.stage.work(self.worker))
            self.stage.clock.advance(8)
            self.do(self.engine.renew(self.worker, []))
            if not self.do(self.engine.release_due()) and self._is_over():
                return
        raise AssertionError([run.states for run in self.runs])

    def _is_over(self) -> bool:
        return not {self.status(run) for run in self.runs} & {"pending", "running"}


def test_the_engine_does_what_the_domain_says(database_url: str):
    with asyncio.Runner() as runner:
        opening = open_stage(database_url, Clock())
        stage = runner.run(opening.__aenter__())
        machine = type("Machine", (EngineMachine,), {"stage": stage, "runner": runner})
        try:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=25,
                    deadline=None,
                    phases=(Phase.explicit, Phase.generate, Phase.shrink),
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(opening.__aexit__(None, None, None))
