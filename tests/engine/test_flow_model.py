"""Random graphs with branches, maps and conditions, step by step: whatever happens, every invariant holds after every
step, and in the end everything ends. `ROTA_MODEL_EXAMPLES=5000` runs for longer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any
from unittest import mock

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
from sqlalchemy import select

from rota.domain.errors import Conflict
from rota.domain.rules import TriggerRule
from rota.domain.work import Assignment, AttemptKey, Finished, WorkerIdentity
from rota.engine import expand
from rota.engine.engine import Engine
from rota.engine.mark import Mark, MarkStatus
from rota.engine.terminate import terminate_run
from rota.store.tables import task_runs
from tests.engine.invariants import find_faults
from tests.engine.stage import LEASE_SECONDS, Clock, Stage, open_stage, task

EXAMPLES = int(os.environ.get("ROTA_MODEL_EXAMPLES", "25"))
NAMES = "abcdefg"
OUTPUTS: tuple[Any, ...] = ([], [1, 2], [1, 2, 3, 4, 5], None, "x", {"a": 1})
_number = itertools.count()


@st.composite
def task_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    count = draw(st.integers(2, len(NAMES)))
    first_teardown = count - draw(st.sampled_from((0, 0, 1)))
    upstreams = {place: [name for name in NAMES[:place] if draw(st.integers(0, 2)) == 0] for place in range(count)}
    for place, name in enumerate(NAMES[:count]):
        below = [NAMES[other] for other in range(place + 1, count) if name in upstreams[other]]
        fields: dict[str, Any] = {
            "output": "json",
            "retry_count": draw(st.sampled_from((0, 0, 1))),
            "retry_delay_seconds": draw(st.sampled_from((0, 7))),
            "max_deliveries": draw(st.sampled_from((1, 2))),
        }
        if place and place >= first_teardown:
            fields["teardown"] = True
        else:
            fields["trigger_rule"] = str(draw(st.sampled_from(TriggerRule)))
        kind = draw(st.sampled_from(("plain", "branch", "map", "map", "when")))
        if kind == "branch" and below and "teardown" not in fields:
            fields["branch"] = True
        elif kind == "map":
            fields |= draw(mappings(upstreams[place]))
        elif kind == "when" and upstreams[place]:
            fields["when"] = f"tasks.{upstreams[place][0]}.status == 'success'"
        items.append(task(name, *upstreams[place], **fields))
    return items


def mappings(upstreams: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    over: list[Any] = [[1], [1, 2, 3], [1, 2, 3, 4, 5, 6, 7], []]
    over += [f"tasks.{name}.output" for name in upstreams] * 3
    limits = {"map_concurrency": st.sampled_from((1, 2, 5))}
    return st.fixed_dictionaries({"map_over": st.sampled_from(over)}, optional=limits)


class FlowMachine(RuleBasedStateMachine):
    """Two runs of one workflow."""

    stage: Stage
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        # A queue of its own keeps the examples apart, which share one database.
        self.queue = f"q{next(_number)}"
        self.runs: list[str] = []
        self.held: dict[str, Assignment] = {}
        self.workflow_id = ""
        self.worker: WorkerIdentity = self.do(self.stage.register(queues=(self.queue,)))

    def do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    @property
    def engine(self) -> Engine:
        return self.stage.engine

    @initialize(items=task_lists(), limit=st.sampled_from((0, 1)))
    def begin(self, items: list[dict[str, Any]], limit: int) -> None:
        named = [{**item, "queue": self.queue} for item in items]
        self.branches = {
            item["name"]: [other["name"] for other in items if item["name"] in other.get("depends_on", ())]
            for item in items
            if item.get("branch")
        }
        self.workflow_id = self.do(self.stage.define(*named, name=self.queue, max_active_runs=limit))
        self.runs = [self.do(self.stage.submit(self.workflow_id)) for _ in range(2)]

    # --- steps ------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 5))
    def claim(self, limit: int) -> None:
        for item in self.do(self.stage.claim(self.worker, limit)):
            self.held[item.task_run_id] = item

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True, min_size=1, max_size=4), "ended")
        ends = []
        for task_run_id in chosen:
            item = self.held.pop(task_run_id)
            words = ("success", "success", "success", "success", "failed", "cancelled", "skipped")
            status = data.draw(st.sampled_from(words), item.task)
            output = data.draw(self._outputs(item.task), f"output of {item.task}")
            ends.append(Finished(task_run_id, item.attempt, status, output=output, error_type="exit_code"))
        # Every result twice: the second is late.
        results = self.do(self.engine.report(self.worker, [*ends, *ends])).results
        assert all(result.is_accepted for result in results[: len(ends)])
        assert [result.code for result in results[len(ends) :]] == ["late"] * len(ends)

    def _outputs(self, name: str) -> st.SearchStrategy[Any]:
        if name not in self.branches:
            return st.sampled_from(OUTPUTS)
        return st.lists(st.sampled_from(self.branches[name]), unique=True) | st.sampled_from((None, "nobody"))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def lose_some(self, data: st.DataObject) -> None:
        """The worker forgets some of its attempts; the others are renewed in time."""
        lost = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1), "lost")
        kept = [AttemptKey(key, item.attempt) for key, item in sorted(self.held.items()) if key not in lost]
        self.stage.clock.advance(LEASE_SECONDS - 1)
        self.do(self.engine.renew(self.worker, kept))
        self.stage.clock.advance(2)
        assert self.do(self.engine.reap_attempts()) == len(lost)
        for key in lost:
            del self.held[key]

    @rule()
    def wait_for_retries(self) -> None:
        keys = [AttemptKey(key, item.attempt) for key, item in self.held.items()]
        self.stage.clock.advance(8)
        self.do(self.engine.renew(self.worker, keys))
        self.do(self.engine.release_due())

    @rule()
    def expand(self) -> None:
        self.do(self.engine.expand_maps())

    @rule(place=st.integers(0, 1))
    def cancel_run(self, place: int) -> None:
        with suppress(Conflict):
            self.do(self.engine.cancel_run(self.runs[place]))

    @rule(data=st.data())
    def cancel_some(self, data: st.DataObject) -> None:
        with suppress(Conflict):
            self.do(self.engine.cancel_task_run(self._draw_task_run(data)))

    @rule(place=st.integers(0, 1))
    def retry_run(self, place: int) -> None:
        with suppress(Conflict):
            self.do(self.engine.retry_run(self.runs[place]))

    @rule(data=st.data())
    def retry_some(self, data: st.DataObject) -> None:
        with suppress(Conflict):
            self.do(self.engine.retry_task_run(self._draw_task_run(data)))

    @rule(data=st.data(), status=st.sampled_from(("success", "failed", "skipped")))
    def mark_some(self, data: st.DataObject, status: MarkStatus) -> None:
        task_run_id = self._draw_task_run(data)
        with suppress(Conflict):
            self.do(self.engine.mark_task_run(task_run_id, Mark(status)))
        self._forget_what_was_taken_away()

    @rule(place=st.integers(0, 1))
    def terminate(self, place: int) -> None:
        core, run_id = self.engine._core, self.runs[place]
        self.do(self.stage.database.transact(lambda tx: terminate_run(core, tx, run_id, "")))
        self._forget_what_was_taken_away()

    def _forget_what_was_taken_away(self) -> None:
        of_runs = select(task_runs.c.id).where(task_runs.c.run_id.in_(self.runs), task_runs.c.status == "running")
        running = {row.id for row in self.do(self.stage.rows(of_runs))}
        self.held = {key: item for key, item in self.held.items() if key in running}

    def _draw_task_run(self, data: st.DataObject) -> str:
        of_runs = select(task_runs.c.id).where(task_runs.c.run_id.in_(self.runs)).order_by(task_runs.c.id)
        found = [str(row.id) for row in self.do(self.stage.rows(of_runs))]
        return found[data.draw(st.integers(0, len(found) - 1), "task run")]

    @rule()
    def restart(self) -> None:
        """A node that starts anew knows nothing but what is in the database."""
        self.stage.node.engine = Engine(self.stage.database, self.stage.engine._core.options)

    # --- what holds -------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        if self.workflow_id:
            faults = self.do(find_faults(self.stage.database, [self.workflow_id]))
            assert not faults, faults

    def teardown(self) -> None:
        """Whatever has happened, a good worker and time bring everything to its end."""
        self.do(self.engine.leave(self.worker))
        self.worker = self.do(self.stage.register(queues=(self.queue,)))
        for _ in range(30):
            self.do(self._work())
            self.stage.clock.advance(8)
            self.do(self.engine.renew(self.worker, []))
            due, created = self.do(self.engine.release_due()), self.do(self.engine.expand_maps())
            if not due and not created and self._is_over():
                self.holds()
                return
        raise AssertionError([self.do(self.stage.statuses(run_id)) for run_id in self.runs])

    async def _work(self) -> None:
        while items := await self.stage.claim(self.worker):
            ends = [
                Finished(item.task_run_id, item.attempt, "success", output=self.branches.get(item.task, [1]))
                for item in items
            ]
            await self.engine.report(self.worker, ends)

    def _is_over(self) -> bool:
        return not {self.do(self.stage.run_status(run_id)) for run_id in self.runs} & {"pending", "running"}


def test_whatever_happens_every_map_and_branch_comes_to_its_end(database_url: str):
    with asyncio.Runner() as runner, mock.patch.object(expand, "ITEMS_AT_ONCE", 3):
        opening = open_stage(database_url, Clock())
        stage = runner.run(opening.__aenter__())
        machine = type("Machine", (FlowMachine,), {"stage": stage, "runner": runner})
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
