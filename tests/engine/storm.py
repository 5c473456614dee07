"""Everything at once: several nodes do random things to the same few workflows at the same moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from rota.domain.errors import Conflict, NotFound, Unauthenticated
from rota.domain.work import Assignment, AttemptKey, Finished, Registration, Report, WorkerIdentity
from rota.engine.engine import Engine
from rota.engine.submit import RunRequest
from rota.store.tables import task_runs, workflow_runs, workflows
from tests.engine.invariants import find_faults
from tests.engine.stage import Node, Stage, settle, task, workflow

# What several callers may be told when they are after the same thing.
EXPECTED = (Conflict, NotFound, Unauthenticated)
RETENTION_SECONDS = 900.0

JOINS = workflow(
    *(task(f"a{number}", retry_count=1, retry_delay_seconds=0) for number in range(4)),
    task("j0", "a0", "a1", "a2"),
    task("j1", "a1", "a2", "a3", trigger_rule="all_done"),
    task("j2", "a0", "a3", "j0", trigger_rule="one_success"),
    task("repair", "j0", "j1", trigger_rule="one_failed", retry_count=2, retry_delay_seconds=20),
    task("clean", "j0", "j1", "j2", teardown=True),
    name="joins",
    max_active_runs=3,
)
POOLED = workflow(
    task("x", pool="small", max_deliveries=2),
    task("y", "x", pool="small", on_lost="fail"),
    name="pooled",
    max_active_runs=0,
    max_active_tasks=4,
)
# Runs that start runs: by their tasks, by the tasks of these, and by their end.
CALLING = workflow(
    task("before"),
    task("call", "before", workflow="joins", retry_count=1, retry_delay_seconds=0),
    task("deep", workflow="called", timeout_seconds=300),
    task("forget", "before", workflow="pooled", wait_for_result=False),
    task("after", "call", "deep", trigger_rule="all_done"),
    task("clean", "after", teardown=True, workflow="pooled"),
    name="calling",
    max_active_runs=4,
)
CALLED = workflow(
    task("call", workflow="pooled"), name="called", max_active_runs=2, on=[{"workflow": "joins", "status": "failed"}]
)
HEARING = workflow(task("hear"), name="hearing", on=[{"workflow": "calling", "status": "done"}, {"workflow": "called"}])
FLOW = workflow(
    task("choose", branch=True, output="json"),
    task("list", "choose", output="json", retry_count=1, retry_delay_seconds=0),
    task("each", "list", map_over="tasks.list.output", retry_count=1, retry_delay_seconds=20),
    task("few", "choose", map_over=[1, 2, 3, 4, 5], map_concurrency=2, output="none"),
    task("join", "each", "few", trigger_rule="none_failed_min_one_success"),
    task("sweep", "each", map_over=["a", "b"], teardown=True),
    name="flow",
    max_active_runs=2,
)
# What the tasks of this one leave; the others need nothing.
OUTPUTS: dict[str, list[Any]] = {
    "choose": [["list", "few"], "list", "few", [], "nobody"],
    "list": [[1, 2, 3, 4, 5, 6, 7], [1], [], "no list"],
}
TICKING = [
    workflow(task("t"), task("u", "t"), name="ticking", schedule_cron="* * * * *", max_active_runs=2),
    workflow(
        task("t"),
        task("v", "t"),
        name="ticking",
        schedule_cron="*/2 * * * *",
        max_active_runs=3,
        run_timeout_seconds=90,
    ),
]


@dataclass
class Storm:
    """The nodes, what their workers hold, and a source of chance."""

    stage: Stage
    nodes: Sequence[Node]
    chance: random.Random
    workers: list[WorkerIdentity] = field(default_factory=list)
    held: list[tuple[WorkerIdentity, Assignment]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    workflow_ids: list[str] = field(default_factory=list)

    async def prepare(self) -> None:
        await self.stage.add_pool("small", 3)
        for spec in (JOINS, POOLED, CALLING, FLOW, CALLED, HEARING, TICKING[0]):
            self.workflow_ids.append((await self.stage.engine.apply_workflow(spec)).id)
        for _ in range(3):
            self.workers.append(await self.stage.register())

    async def strike(self, count: int) -> int:
        """Does `count` random things at once; returns how many pairs of verbs met."""
        await self._look()
        verbs = self.chance.choices(VERBS, WEIGHTS, k=count)
        results = await asyncio.gather(
            *(verb(self, self.chance.choice(self.nodes).engine) for verb in verbs), return_exceptions=True
        )
        for verb, result in zip(verbs, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, EXPECTED):
                raise AssertionError(f"{verb.__name__} failed") from result
        return count * (count - 1) // 2

    async def _look(self) -> None:
        found = await self.stage.rows(select(workflow_runs.c.id).order_by(workflow_runs.c.id.desc()).limit(8))
        self.runs = [row.id for row in found]
        open_tasks = select(task_runs.c.id).where(task_runs.c.run_id.in_(self.runs))
        self.tasks = [row.id for row in await self.stage.rows(open_tasks)]

    async def settle(self) -> None:
        """Lets everything that is open come to its end, as time alone and one good worker would do it."""
        for worker in self.workers:
            await self.stage.engine.leave(worker)
        # What listens would go on for as long as anything ends.
        for name in ("joins", "pooled", "flow", "ticking", "called", "hearing"):
            await self.stage.engine.set_active(await self.stage.find(name), is_active=False)
        await settle(self.stage)

    async def find_faults(self) -> list[str]:
        for node in self.nodes:
            while await node.engine.follow():
                pass
        await self.stage.follow()
        # A run whose turn was passed over while it was being looked at is the reaper's to start.
        await self.stage.engine.reap_runs()
        return await find_faults(self.stage.database)

    # --- what there is to do ----------------------------------------------------------------------------------

    async def claim(self, engine: Engine) -> None:
        worker = self.chance.choice(self.workers)
        for item in await engine.claim(worker, limit=self.chance.randint(1, 6)):
            self.held.append((worker, item))

    async def report(self, engine: Engine) -> None:
        """Ends some of what a worker holds; the same thing may be reported by two at once, as by a worker that
        never saw the answer to its first report."""
        worker = self.chance.choice(self.workers)
        mine = [item for holder, item in self.held if holder == worker]
        chosen = self.chance.sample(mine, min(len(mine), self.chance.randint(1, 6)))
        ends: list[Report] = []
        for item in chosen:
            status = self.chance.choices(("success", "failed", "cancelled", "skipped"), (12, 4, 1, 1))[0]
            output = self.chance.choice(OUTPUTS.get(item.task, [None]))
            ends.append(Finished(item.task_run_id, item.attempt, status, output=output, error_type="exit_code"))
        reply = await engine.report(worker, ends, claim=self.chance.choice((0, 0, 3)))
        # Now and then the answer is lost, and the worker reports again later.
        if self.chance.random() < 0.8:
            done = {(item.task_run_id, item.attempt) for item in chosen}
            self.held = [pair for pair in self.held if (pair[1].task_run_id, pair[1].attempt) not in done]
        self.held += [(worker, item) for item in reply.assignments]

    async def renew(self, engine: Engine) -> None:
        worker = self.chance.choice(self.workers)
        mine = [AttemptKey(item.task_run_id, item.attempt) for holder, item in self.held if holder == worker]
        reply = await engine.renew(worker, mine)
        self.held = [
            pair for pair in self.held if AttemptKey(pair[1].task_run_id, pair[1].attempt) not in set(reply.lost)
        ]

    async def submit(self, engine: Engine) -> None:
        await engine.submit(RunRequest(self.chance.choice(self.workflow_ids[:4])))

    async def fire(self, engine: Engine) -> None:
        await engine.fire()

    async def cancel_run(self, engine: Engine) -> None:
        if self.runs:
            await engine.cancel_run(self.chance.choice(self.runs))

    async def cancel_task_run(self, engine: Engine) -> None:
        if self.tasks:
            await engine.cancel_task_run(self.chance.choice(self.tasks))

    async def retry_run(self, engine: Engine) -> None:
        if self.runs:
            await engine.retry_run(self.chance.choice(self.runs))

    async def retry_task_run(self, engine: Engine) -> None:
        if self.tasks:
            await engine.retry_task_run(self.chance.choice(self.tasks))

    async def tend(self, engine: Engine) -> None:
        reap = (engine.reap_attempts, engine.reap_attempts, engine.reap_workers, engine.reap_runs)
        await self.chance.choice((engine.release_due, engine.expand_maps, engine.expand_maps, *reap))()

    async def follow(self, engine: Engine) -> None:
        await engine.follow()

    async def prune(self, engine: Engine) -> None:
        await engine.prune(RETENTION_SECONDS)

    async def restart_worker(self, engine: Engine) -> None:
        place = self.chance.randrange(len(self.workers))
        old = self.workers[place]
        self.workers[place] = (await engine.register(Registration(concurrency=100))).identity
        self.held = [pair for pair in self.held if pair[0] != old]
        await self.chance.choice((engine.leave, engine.doubt))(old)

    async def apply(self, engine: Engine) -> None:
        await engine.apply_workflow(self.chance.choice((JOINS, POOLED, CALLING, FLOW, HEARING, *TICKING)))

    async def pause(self, engine: Engine) -> None:
        row = await self.stage.find("ticking")
        await engine.set_active(row, is_active=self.chance.random() < 0.7)

    async def explain(self, engine: Engine) -> None:
        if self.runs:
            await engine.explain_run(self.chance.choice(self.runs))


Verb = Callable[[Storm, Engine], Awaitable[Any]]
CHANCES: dict[Verb, int] = {
    Storm.claim: 8,
    Storm.report: 12,
    Storm.renew: 3,
    Storm.submit: 5,
    Storm.fire: 2,
    Storm.cancel_run: 2,
    Storm.cancel_task_run: 2,
    Storm.retry_run: 2,
    Storm.retry_task_run: 1,
    Storm.tend: 4,
    Storm.follow: 2,
    Storm.prune: 1,
    Storm.restart_worker: 1,
    Storm.apply: 1,
    Storm.pause: 1,
    Storm.explain: 1,
}
VERBS = list(CHANCES)
WEIGHTS = list(CHANCES.values())


async def delete_everything(stage: Stage) -> None:
    """All that storms leave behind can be deleted: nothing is open."""
    for row in await stage.rows(select(workflows.c.id)):
        await stage.engine.delete_workflow(row.id)
