"""What the engine's tests are played on: a database, nodes, a clock to be turned by hand, workers without processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Executable, insert, select

from rota.domain.spec import ACTION_FIELDS, WorkflowSpec
from rota.domain.spec_parse import parse_workflow
from rota.domain.work import Assignment, Finished, Registration, ReportResult, WorkerIdentity
from rota.engine.core import EngineOptions
from rota.engine.engine import Engine
from rota.engine.submit import RunRequest
from rota.store.database import Database, DatabaseOptions
from rota.store.definitions import WorkflowRow, find_workflow
from rota.store.dialect import NOW
from rota.store.tables import schedules, state_history, task_runs, tasks, workflow_runs
from rota.store.tables_limits import pools

START = datetime(2026, 1, 5, 12, tzinfo=UTC)
LEASE_SECONDS = 30.0
# What a task does: a status for each of its tries, the last one for all further ones.
Script = Mapping[str, str | Sequence[str]]


class Clock:
    """The time that the database goes by, until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def task(name: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    """A task in the words of the definition."""
    action = {} if ACTION_FIELDS.keys() & fields.keys() else {"command": "true"}
    return {"name": name, **action, **({"depends_on": list(depends_on)} if depends_on else {}), **fields}


def workflow(*items: dict[str, Any], name: str = "flow", **fields: Any) -> WorkflowSpec:
    """A workflow made of these tasks."""
    return parse_workflow({"name": name, "tasks": list(items), **fields}, now=None)


@dataclass
class Node:
    """One server process as far as the engine is concerned."""

    database: Database
    engine: Engine


@dataclass
class Stage:
    """A node with everything around it. More nodes on the same database come from `open_node`."""

    url: str
    clock: Clock
    node: Node
    worker_options: dict[str, Any] = field(default_factory=dict)

    @property
    def engine(self) -> Engine:
        return self.node.engine

    @property
    def database(self) -> Database:
        return self.node.database

    async def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        return await self.database.read(lambda tx: tx.rows(statement, parameters))

    async def execute(self, statement: Executable) -> None:
        await self.database.transact(lambda tx: tx.run(statement))

    # --- definitions and runs ---------------------------------------------------------------------------------

    async def define(self, *items: dict[str, Any], name: str = "flow", **fields: Any) -> str:
        return (await self.engine.apply_workflow(workflow(*items, name=name, **fields))).id

    async def find(self, name: str = "flow", namespace: str = "default") -> WorkflowRow:
        found = await self.database.read(lambda tx: find_workflow(tx, namespace, name=name))
        assert found is not None
        return found

    async def add_pool(self, name: str, slots: int, namespace: str = "default") -> None:
        await self.execute(
            insert(pools).values(namespace=namespace, name=name, slots=slots, created_at=NOW, updated_at=NOW)
        )

    async def submit(self, workflow_id: str, **fields: Any) -> str:
        run = await self.engine.submit(RunRequest(workflow_id, **fields))
        assert run.id is not None
        return run.id

    async def start(self, *items: dict[str, Any], **fields: Any) -> str:
        """Defines a workflow and starts a run of it."""
        return await self.submit(await self.define(*items, **fields))

    # --- what is stored ---------------------------------------------------------------------------------------

    async def run_row(self, run_id: str) -> Any:
        (row,) = await self.rows(select(workflow_runs).where(workflow_runs.c.id == run_id))
        return row

    async def run_status(self, run_id: str) -> str:
        return str((await self.run_row(run_id)).status)

    async def task_rows(self, run_id: str) -> dict[str, Any]:
        found = await self.rows(
            select(task_runs, tasks.c.name)
            .join(tasks, tasks.c.id == task_runs.c.task_id)
            .where(task_runs.c.run_id == run_id, task_runs.c.map_index == -1)
        )
        return {row.name: row for row in found}

    async def item_rows(self, run_id: str, name: str) -> Sequence[Any]:
        """The items of a mapped task, in their order."""
        return await self.rows(
            select(task_runs)
            .join(tasks, tasks.c.id == task_runs.c.task_id)
            .where(task_runs.c.run_id == run_id, tasks.c.name == name, task_runs.c.map_index >= 0)
            .order_by(task_runs.c.map_index)
        )

    async def statuses(self, run_id: str) -> dict[str, str]:
        return {name: row.status for name, row in (await self.task_rows(run_id)).items()}

    async def states_of(self, run_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """The states of the tasks of many runs."""
        found: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
        statement = select(task_runs.c.run_id, tasks.c.name, task_runs.c.status).join(
            tasks, tasks.c.id == task_runs.c.task_id
        )
        for row in await self.rows(statement):
            if row.run_id in found:
                found[row.run_id][row.name] = row.status
        return found

    async def task_run_id(self, run_id: str, name: str) -> str:
        return str((await self.task_rows(run_id))[name].id)

    async def history(self, entity_id: str) -> list[tuple[str | None, str, dict[str, Any]]]:
        """(old, new, metadata) of one entity, in order."""
        found = await self.rows(
            select(state_history).where(state_history.c.entity_id == entity_id).order_by(state_history.c.seq)
        )
        return [(row.old_state, row.new_state, row.metadata or {}) for row in found]

    async def schedule_rows(self, workflow_id: str) -> Sequence[Any]:
        return await self.rows(
            select(schedules).where(schedules.c.workflow_id == workflow_id).order_by(schedules.c.position)
        )

    async def runs_of(self, workflow_id: str) -> Sequence[Any]:
        return await self.rows(
            select(workflow_runs)
            .where(workflow_runs.c.workflow_id == workflow_id)
            .order_by(workflow_runs.c.logical_date, workflow_runs.c.id)
        )

    async def follow(self) -> int:
        """Lets everything happen that follows from one run for others; how much that was."""
        done = 0
        while count := await self.engine.follow():
            done += count
        return done

    # --- workers ------------------------------------------------------------------------------------------------

    async def register(self, **fields: Any) -> WorkerIdentity:
        known = {"name": "worker", "concurrency": 100, **fields}
        return (await self.engine.register(Registration(**known))).identity

    async def claim(self, worker: WorkerIdentity, limit: int = 100) -> list[Assignment]:
        return list(await self.engine.claim(worker, limit=limit))

    async def _follow_and_claim(self, worker: WorkerIdentity) -> list[Assignment]:
        await self.follow()
        return await self.claim(worker)

    async def finish(
        self, worker: WorkerIdentity, items: Iterable[Assignment], status: str = "success", **fields: Any
    ) -> tuple[ReportResult, ...]:
        ends = [Finished(item.task_run_id, item.attempt, status, **fields) for item in items]
        return (await self.engine.report(worker, ends)).results

    async def work(self, worker: WorkerIdentity, script: Script | None = None) -> list[str]:
        """Claims and ends until nothing is queued; returns the names of the tasks in the order of their starts."""
        started: list[str] = []
        while items := await self.claim(worker) or await self._follow_and_claim(worker):
            started += [item.task for item in items]
            ends = [_end(item, script or {}) for item in items]
            for result in (await self.engine.report(worker, ends)).results:
                assert result.is_accepted, result
        return started


def _end(item: Assignment, script: Script) -> Finished:
    outcome = script.get(item.task, "success")
    if not isinstance(outcome, str):
        outcome = outcome[min(item.attempt, len(outcome)) - 1]
    is_failed = outcome == "failed"
    return Finished(
        item.task_run_id,
        item.attempt,
        outcome,
        exit_code=int(is_failed),
        error_type="exit_code" if is_failed else None,
        error="it failed" if is_failed else None,
    )


async def settle(stage: Stage) -> None:
    """Lets everything that is open come to its end, as time alone and one good worker would do it."""
    worker = await stage.register()
    open_runs = select(workflow_runs.c.id).where(workflow_runs.c.finished_at.is_(None))
    for _ in range(200):
        stage.clock.advance(LEASE_SECONDS + 1)
        await stage.engine.renew(worker, [])
        await stage.engine.release_due()
        await stage.engine.settle_keys()
        await stage.engine.expire_waiting()
        await stage.engine.expand_maps()
        await stage.engine.reap_attempts()
        await stage.engine.reap_runs()
        if not await stage.work(worker) and not await stage.rows(open_runs):
            return
    raise AssertionError(f"{len(await stage.rows(open_runs))} runs never end")


@asynccontextmanager
async def open_node(
    url: str, clock: Callable[[], datetime] | None = None, *, is_listening: bool = False, **options: Any
) -> AsyncIterator[Node]:
    """A node of its own on a database; without a `clock` the database's time counts."""
    database = Database(DatabaseOptions(url, clock=clock, max_open_connections=4))
    if is_listening:
        await database.open()
    engine = Engine(database, EngineOptions(lease_seconds=LEASE_SECONDS, **options))
    try:
        yield Node(database, engine)
    finally:
        await engine.close()
        await database.close()


@asynccontextmanager
async def open_stage(url: str, clock: Clock | None = None, **options: Any) -> AsyncIterator[Stage]:
    turned = clock or Clock()
    async with open_node(url, turned, **options) as node:
        yield Stage(url, turned, node)
