"""Everything that a flow may be made of, thrown together at random: conditions, branches, maps, calls of others, waits,
approvals and clean-up, while workers fail and get lost and people cancel, retry, mark, decide and run again.

Every invariant holds after each handful of steps, and in the end everything ends. `ROTA_FLOW_EXAMPLES=500` runs for
longer; a failure names the seed, and `ROTA_FLOW_SEED` repeats it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import select

from rota.domain.errors import Conflict, InvalidInput
from rota.domain.rules import TriggerRule
from rota.domain.work import Assignment, Finished, WorkerIdentity
from rota.engine.engine import Engine
from rota.engine.mark import Mark
from rota.engine.rerun import Rerun
from rota.store.tables import task_runs, workflow_runs
from tests.engine.invariants import find_faults
from tests.engine.stage import LEASE_SECONDS, Clock, Stage, open_stage, task

EXAMPLES = int(os.environ.get("ROTA_FLOW_EXAMPLES", "12"))
STEPS = 60
CHILD = [task("one", output="json"), task("two", "one", retry_count=1, retry_delay_seconds=0)]


def make_flow(chance: random.Random) -> list[dict[str, Any]]:
    """The tasks of a workflow, each of them before those that wait for it."""
    names = [f"t{number}" for number in range(chance.randint(2, 9))]
    upstreams = {name: [other for other in names[:place] if chance.random() < 0.35] for place, name in enumerate(names)}
    items = [_make_task(chance, name, upstreams[name], _find_below(name, upstreams)) for name in names]
    if chance.random() < 0.4:
        items.append(task("clean", *chance.sample(names, chance.randint(1, len(names))), teardown=True))
    return items


def _find_below(name: str, upstreams: dict[str, list[str]]) -> list[str]:
    return [other for other, above in upstreams.items() if name in above]


def _make_task(chance: random.Random, name: str, above: list[str], below: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "trigger_rule": str(chance.choice(list(TriggerRule))) if chance.random() < 0.4 else "all_success",
        "retry_count": chance.choice((0, 0, 1)),
        "retry_delay_seconds": chance.choice((0, 5)),
        "max_deliveries": chance.choice((1, 3)),
    }
    if above and chance.random() < 0.2:
        other = chance.choice(above)
        fields["when"] = chance.choice((f"tasks.{other}.status == 'success'", "false", f"tasks.{other}.output.nothing"))
    kind = chance.choice(("plain", "plain", "plain", "branch", "map", "map", "call", "wait", "approval"))
    if kind == "branch" and below:
        fields |= {"branch": True, "output": "json"}
    elif kind == "map":
        over: Any = list(range(chance.randint(0, 4)))
        if above and chance.random() < 0.5:
            over = f"tasks.{chance.choice(above)}.output"
        fields |= {"map_over": over, "output": "json"}
        if chance.random() < 0.5:
            fields["map_concurrency"] = chance.randint(1, 2)
    elif kind == "call":
        fields |= {"workflow": "child", "wait_for_result": chance.random() < 0.8}
    elif kind == "wait":
        fields["wait"] = {"seconds": chance.choice((0, 3, 30))}
    elif kind == "approval":
        fields["approval"] = {"deadline_seconds": 40, "on_deadline": chance.choice(("fail", "approve", "skip"))}
    else:
        fields["output"] = "json"
    return task(name, *above, **fields)


class Play:
    """One workflow with a few runs, and everybody who does something to them."""

    def __init__(self, stage: Stage, chance: random.Random, number: int) -> None:
        self.stage = stage
        self.chance = chance
        self.name = f"flow-{number}"
        self.items = make_flow(chance)
        self.worker: WorkerIdentity
        self.held: list[Assignment] = []
        self.workflow_id = ""
        self.steps: list[Callable[[], Awaitable[Any]]] = [
            *(self.claim, self.claim, self.report, self.report, self.report, self.let_time_pass, self.let_time_pass),
            *(
                self.lose,
                self.cancel,
                self.cancel_one,
                self.retry,
                self.mark,
                self.decide,
                self.run_again,
                self.restart,
            ),
        ]

    @property
    def engine(self) -> Engine:
        return self.stage.engine

    async def begin(self) -> None:
        self.workflow_id = await self.stage.define(
            *self.items, name=self.name, max_active_runs=self.chance.choice((0, 1, 2))
        )
        for _ in range(2):
            await self.stage.submit(self.workflow_id)
        self.worker = await self.stage.register()

    async def step(self) -> None:
        # What people ask for may be too late.
        with suppress(Conflict):
            await self.chance.choice(self.steps)()

    # --- workers ------------------------------------------------------------------------------------------------

    async def claim(self) -> None:
        self.held += await self.stage.claim(self.worker, self.chance.randint(1, 5))

    async def report(self) -> None:
        self.chance.shuffle(self.held)
        count = self.chance.randint(0, len(self.held))
        ended, self.held = self.held[:count], self.held[count:]
        reports = [self._end(item) for item in ended]
        # Every result twice: the second is late.
        await self.engine.report(self.worker, [*reports, *reports])

    def _end(self, item: Assignment) -> Finished:
        status = self.chance.choices(("success", "failed", "skipped", "cancelled"), (8, 3, 1, 1))[0]
        below = [other["name"] for other in self.items if item.task in other.get("depends_on", ())]
        outputs: list[Any] = [None, [1, 2, 3], [], {"rows": 3}, "text", below[:1], below, "nobody"]
        output = self.chance.choice(outputs) if status == "success" else None
        return Finished(item.task_run_id, item.attempt, status, error_type="exit_code", output=output)

    async def lose(self) -> None:
        """The worker falls silent with all that it has."""
        self.stage.clock.advance(LEASE_SECONDS + 1)
        self.held.clear()
        await self.engine.reap_attempts()
        await self.engine.reap_workers()
        self.worker = await self.stage.register()

    async def let_time_pass(self) -> None:
        self.stage.clock.advance(self.chance.choice((1, 4, 12)))
        await self.do_duties()

    async def do_duties(self) -> None:
        for duty in (
            *(self.engine.release_due, self.engine.serve_due, self.engine.settle_keys, self.engine.expire_waiting),
            *(self.engine.expand_maps, self.engine.reap_runs, self.stage.follow),
        ):
            while await duty():
                pass

    async def restart(self) -> None:
        """A node that starts anew knows nothing but what is in the database."""
        self.stage.node.engine = Engine(self.stage.database, self.engine._core.options)

    # --- people -------------------------------------------------------------------------------------------------

    async def _choose(self, statement: Any) -> str:
        found = sorted(row.id for row in await self.stage.rows(statement))
        if not found:
            raise Conflict("there is none")
        return str(self.chance.choice(found))

    async def _choose_run(self) -> str:
        return await self._choose(select(workflow_runs.c.id).where(workflow_runs.c.workflow_id == self.workflow_id))

    async def _choose_task_run(self, *statuses: str) -> str:
        statement = select(task_runs.c.id).where(task_runs.c.workflow_id == self.workflow_id)
        return await self._choose(statement.where(task_runs.c.status.in_(statuses)) if statuses else statement)

    async def cancel(self) -> None:
        if self.chance.random() < 0.3:
            await self.engine.cancel_run(await self._choose_run())

    async def cancel_one(self) -> None:
        await self.engine.cancel_task_run(await self._choose_task_run("queued", "running", "retrying", "pending"))

    async def retry(self) -> None:
        if self.chance.random() < 0.5:
            await self.engine.retry_run(await self._choose_run())
        else:
            await self.engine.retry_task_run(await self._choose_task_run("failed"))

    async def mark(self) -> None:
        if self.chance.random() < 0.5:
            mark = self.chance.choice((Mark("success", "because"), Mark("failed"), Mark("skipped")))
            await self.engine.mark_task_run(await self._choose_task_run(), mark)

    async def decide(self) -> None:
        waiting = select(task_runs.c.id).where(
            task_runs.c.workflow_id == self.workflow_id, task_runs.c.holder == "approval"
        )
        is_approved = self.chance.random() < 0.6
        await self.engine.decide_approval(await self._choose(waiting), is_approved=is_approved, by="somebody")

    async def run_again(self) -> None:
        if self.chance.random() < 0.3:
            name = self.chance.choice(self.items)["name"]
            wanted = self.chance.choice((Rerun("whole"), Rerun("unfinished"), Rerun("tasks", (name,))))
            with suppress(InvalidInput):
                await self.engine.retry_or_rerun(await self._choose_run(), wanted)

    # --- the end ------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        """Time and one good worker bring everything to its end."""
        await self.lose()
        open_runs = select(workflow_runs.c.id).where(workflow_runs.c.finished_at.is_(None))
        for _ in range(60):
            while items := await self.stage.claim(self.worker):
                await self.engine.report(self.worker, [self._succeed(item) for item in items])
            await self.do_duties()
            if not await self.stage.rows(open_runs):
                return
            self.stage.clock.advance(8)
            await self.engine.renew(self.worker, [])
        states = [await self.stage.statuses(row.id) for row in await self.stage.rows(open_runs)]
        raise AssertionError(f"these never end: {states}")

    @staticmethod
    def _succeed(item: Assignment) -> Finished:
        return Finished(item.task_run_id, item.attempt, "success", output=[1])


async def _play(stage: Stage, seed: int, number: int) -> None:
    play = Play(stage, random.Random(seed), number)
    await play.begin()
    for step in range(STEPS):
        await play.step()
        if step % 6 == 5:
            # What follows for other runs has its own transactions.
            await stage.follow()
            assert not (faults := await find_faults(stage.database)), faults
    await play.end()
    assert not (faults := await find_faults(stage.database)), faults


async def test_random_flows_end_and_keep_the_rules(database_url: str):
    given = os.environ.get("ROTA_FLOW_SEED")
    seeds = [int(given)] if given else [random.randrange(2**32) for _ in range(EXAMPLES)]
    for number, seed in enumerate(seeds):
        async with open_stage(database_url, Clock()) as stage:
            await stage.define(*CHILD, name="child")
            try:
                await _play(stage, seed, number)
            except Exception as error:
                raise AssertionError(f"ROTA_FLOW_SEED={seed}: {error}") from error
