"""What the verbs share: the database, options, and memories of things that never change."""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rota.domain.fork import Fork
from rota.domain.ids import is_uuid, make_uuid7
from rota.domain.schedule import ScheduleSpec, parse_schedule
from rota.domain.spec import WORKER_KINDS, TaskSpec
from rota.domain.spec_task import task_from_dict
from rota.engine.expressions import Expression, compile_expression, compile_mapping
from rota.engine.follow_up import FollowUp
from rota.engine.params import Declaration, declare
from rota.engine.ready import ReadyLanes
from rota.engine.templates import KEY_FIELD, TaskTemplate, compile_fields, compile_task
from rota.engine.vault import Vault
from rota.engine.watch import Watch
from rota.store import definitions, lanes, workers, workflow_runs
from rota.store.database import Database, Transaction
from rota.store.gates import DueRow, PutOff, ReadyRow
from rota.store.history import Change
from rota.store.lanes import Lane
from rota.store.outcomes import Outcome
from rota.store.queues import QueueName
from rota.store.schedules import ScheduleRow
from rota.store.workflow_runs import RunFacts

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Times and bounds that the verbs go by."""

    lease_seconds: float = 30.0
    heartbeat_interval_seconds: float = 10.0
    # After a worker's connection broke: how long its leases still last.
    suspect_seconds: float = 3.0
    max_output_bytes: int = 1_000_000
    audit_retention_seconds: float = 366 * 86_400.0
    # Lanes looked at by one claim, unless it finds nothing.
    lane_window: int = 100
    # How much may wait to be done, in all and of one namespace, and how much memory this process may keep; 0: no limit.
    queue_job_limit: int = 0
    namespace_backlog_limit: int = 0
    queue_memory_bytes: int = 0
    # How long a node goes by what it knows about which queues have limits.
    queue_memory_seconds: float = 1.0


# So many runs may stand above one that is started by a task or by the end of another.
MAX_DEPTH = 50
# What the column holds.
MAX_ATTEMPT = 2**31 - 1


def can_exist(task_run_id: str, attempt: int) -> bool:
    """Whether these can name an attempt. Asking a database about any other key would end the transaction."""
    return is_uuid(task_run_id) and 0 <= attempt <= MAX_ATTEMPT


class Memory(Generic[K, V]):
    """Remembers the most recently used entries of something that never changes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)


@dataclass(frozen=True)
class TaskDefinition:
    """A task of a version, ready for use."""

    id: str
    version_id: str
    workflow_id: str
    workflow_name: str
    namespace: str
    name: str
    kind: str
    # In the words of the definition, as a worker gets it.
    document: dict[str, Any]

    @cached_property
    def spec(self) -> TaskSpec:
        """Parsed when it is first asked for: most tasks end well, and then nobody asks."""
        return task_from_dict(self.document)

    @cached_property
    def condition(self) -> Expression | None:
        """Its `when`, ready to be evaluated."""
        when = self.document.get("when")
        return None if when is None else compile_expression(when)

    @cached_property
    def mapping(self) -> Expression | None:
        """What its `map_over` stands for, ready to be evaluated."""
        map_over = self.document.get("map_over")
        return None if map_over is None else compile_mapping(map_over)

    @cached_property
    def key(self) -> TaskTemplate | None:
        """Its concurrency key, if it has one."""
        if KEY_FIELD not in self.document:
            return None
        return compile_fields(self.document, (KEY_FIELD,)) or TaskTemplate({}, frozenset())

    @property
    def has_gate_again(self) -> bool:
        """Whether the engine looks at each of its tries, not only at the first."""
        return self.kind not in WORKER_KINDS or KEY_FIELD in self.document or "queue_timeout_seconds" in self.document

    @cached_property
    def template(self) -> TaskTemplate | None:
        """Its templates, if it has any."""
        return compile_task(self.document)


@dataclass(frozen=True, slots=True)
class VersionDefinition:
    """What creating a run needs to know of a version."""

    id: str
    workflow_id: str
    task_ids: tuple[str, ...]
    # Those that are queued as soon as the run starts.
    first_task_ids: frozenset[str]
    # Those that the engine looks at before a worker may have them.
    gated_task_ids: frozenset[str]
    run_timeout_seconds: float | None
    # None where nothing is declared: then a run takes whatever it is given.
    params: Declaration | None = None
    branch_task_ids: frozenset[str] = frozenset()
    is_watched: bool = False


WorkSort = tuple[frozenset[str], frozenset[str], frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker said of itself when it registered."""

    id: str
    incarnation: str
    queues: frozenset[str]
    kinds: frozenset[str]
    labels: frozenset[tuple[str, str]]

    @property
    def sort(self) -> WorkSort:
        """What it takes: the same for workers that are of no difference to a claim."""
        return (self.queues, self.kinds, self.labels)

    def may_take(self, lane: Lane) -> bool:
        """Whether this worker can execute what is in the lane."""
        return (
            lane.queue in self.queues and lane.kind in self.kinds and all(label in self.labels for label in lane.labels)
        )


class Ended(NamedTuple):
    """A task run that became final in this transaction."""

    run_id: str
    task_id: str
    status: str
    downstream_count: int
    is_teardown: bool
    # Of an item its place in its mapped task; -1 for tasks.
    map_index: int
    # Of a branch: the tasks right below that do not go on.
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadyTask:
    """A queued task run at the gate, with the values that its expressions and templates may use."""

    row: ReadyRow
    task: TaskDefinition
    values: Mapping[str, Any]


@dataclass(slots=True)
class GateReport:
    """What became of task runs at the gate. The others stay queued."""

    ended: list[Ended] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    # Gated task runs that were queued meanwhile.
    ready: list[str] = field(default_factory=list)

    def add(self, other: GateReport) -> None:
        self.ended += other.ended
        self.changes += other.changes
        self.ready += other.ready


class Starter(Protocol):
    """Starts task runs of one kind without a worker: holds each (`gate.hold`) or ends it (`gate.close`). Their runs
    are locked."""

    async def __call__(self, core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport: ...


class DueHandler(Protocol):
    """Decides about held task runs whose time has come, or puts them off. Nothing is locked, so what it returns lands
    only where nothing else has happened meanwhile."""

    async def __call__(
        self, core: Core, transaction: Transaction, due: Sequence[DueRow]
    ) -> Sequence[Outcome | PutOff]: ...


@dataclass(slots=True)
class Backlog:
    """What waited by namespace when it was last counted, and what has been taken since."""

    waiting: dict[str, int] = field(default_factory=dict)
    total: int = 0
    count_again_at: float = 0.0

    def add(self, counts: Mapping[str, int]) -> None:
        for namespace, count in counts.items():
            self.waiting[namespace] = self.waiting.get(namespace, 0) + count
            self.total += count


@dataclass(slots=True)
class Core:
    """The engine's state in this process: nothing in it is needed after a restart."""

    database: Database
    options: EngineOptions = field(default_factory=EngineOptions)
    watch: Watch | None = None
    vault: Vault = field(default_factory=Vault)
    tasks: Memory[str, TaskDefinition] = field(default_factory=lambda: Memory(50_000))
    versions: Memory[str, VersionDefinition] = field(default_factory=lambda: Memory(20_000))
    # By the task id of the branch.
    forks: Memory[str, tuple[Mapping[str, str], Fork]] = field(default_factory=lambda: Memory(5_000))
    run_facts: Memory[str, RunFacts] = field(default_factory=lambda: Memory(20_000))
    lanes: Memory[int, Lane] = field(default_factory=lambda: Memory(200_000))
    workers: Memory[str, WorkerFacts] = field(default_factory=lambda: Memory(10_000))
    schedules: Memory[tuple[str, int], ScheduleSpec] = field(default_factory=lambda: Memory(50_000))
    # How the engine starts the kinds that it looks after, by kind; and what it does when their time has come.
    starters: Mapping[str, Starter] = field(default_factory=dict)
    # By holder.
    due_handlers: Mapping[str, DueHandler] = field(default_factory=dict)
    follow_up: FollowUp = field(default_factory=FollowUp)
    # By what workers take: those that take the same share what is known.
    ready: Memory[WorkSort, ReadyLanes] = field(default_factory=lambda: Memory(100))
    limited_queues: frozenset[QueueName] = frozenset()
    queues_read_at: float = -math.inf
    backlog: Backlog = field(default_factory=Backlog)

    def find_ready(self, worker: WorkerFacts) -> ReadyLanes:
        """What is known of the lanes with work for this worker."""
        known = self.ready.get(worker.sort)
        if known is None:
            known = ReadyLanes(self.options.lane_window)
            self.ready.put(worker.sort, known)
        return known

    def forget_queues(self) -> None:
        """What is known of the limits of queues has changed."""
        self.queues_read_at = -math.inf

    def new_ids(self, count: int) -> list[str]:
        """Fresh identifiers in ascending order, and after all that this process made earlier than this millisecond."""
        milliseconds = time.time_ns() // 1_000_000
        noise = os.urandom(10 * count)
        return sorted(make_uuid7(milliseconds, noise[start : start + 10]) for start in range(0, 10 * count, 10))

    def read_schedule(self, row: ScheduleRow) -> ScheduleSpec:
        """The schedule's rule, parsed once for each version of the row."""
        key = (row.id, row.version)
        spec = self.schedules.get(key)
        if spec is None:
            spec = parse_schedule(row.spec, now=None, seed=row.id)
            self.schedules.put(key, spec)
        return spec

    async def find_tasks(self, transaction: Transaction, task_ids: Sequence[str]) -> dict[str, TaskDefinition]:
        """Definitions of tasks, read from the database only the first time."""
        found = {task_id: task for task_id in set(task_ids) if (task := self.tasks.get(task_id))}
        missing = [task_id for task_id in set(task_ids) if task_id not in found]
        if not missing:
            return found
        rows = await definitions.read_tasks(transaction, missing)
        versions = await definitions.read_version_facts(transaction, list({row.version_id for row in rows}))
        names = {version.id: (version.name, version.namespace) for version in versions}
        for row in rows:
            workflow_name, namespace = names[row.version_id]
            task = TaskDefinition(
                row.id,
                row.version_id,
                row.workflow_id,
                workflow_name,
                namespace,
                row.name,
                row.kind,
                row.spec,
            )
            self.tasks.put(row.id, task)
            found[row.id] = task
        return found

    async def find_version(self, transaction: Transaction, version_id: str) -> VersionDefinition | None:
        return (await self.find_versions(transaction, [version_id])).get(version_id)

    async def find_versions(self, transaction: Transaction, version_ids: Iterable[str]) -> dict[str, VersionDefinition]:
        """Those of these versions that exist and have tasks, read from the database only the first time."""
        wanted = set(version_ids)
        found = {version_id: version for version_id in wanted if (version := self.versions.get(version_id))}
        missing = sorted(wanted - found.keys())
        for start in range(0, len(missing), definitions.ROWS_PER_STATEMENT):
            part = missing[start : start + definitions.ROWS_PER_STATEMENT]
            shapes: dict[str, list[Any]] = defaultdict(list)
            for row in await definitions.read_shapes(transaction, part):
                shapes[row.version_id].append(row)
            for facts in await definitions.read_version_facts(transaction, sorted(shapes)):
                found[facts.id] = _make_version(facts, shapes[facts.id])
                self.versions.put(facts.id, found[facts.id])
        return found

    async def find_run_facts(self, transaction: Transaction, run_ids: Sequence[str]) -> dict[str, RunFacts]:
        found = {run_id: facts for run_id in set(run_ids) if (facts := self.run_facts.get(run_id))}
        missing = [run_id for run_id in set(run_ids) if run_id not in found]
        if missing:
            for facts in await workflow_runs.read_run_facts(transaction, missing):
                self.run_facts.put(facts.id, facts)
                found[facts.id] = facts
        return found

    async def find_lanes(self, transaction: Transaction, lane_ids: Sequence[int]) -> dict[int, Lane]:
        found = {lane_id: lane for lane_id in lane_ids if (lane := self.lanes.get(lane_id))}
        missing = [lane_id for lane_id in lane_ids if lane_id not in found]
        if missing:
            for lane_id, lane in (await lanes.read_lanes(transaction, missing)).items():
                self.lanes.put(lane_id, lane)
                found[lane_id] = lane
        return found

    async def find_worker(self, transaction: Transaction, incarnation: str) -> WorkerFacts | None:
        """The worker of this incarnation, if it has registered and has not been given up."""
        known = self.workers.get(incarnation)
        if known is None:
            row = await workers.find_incarnation(transaction, incarnation)
            if row is None:
                return None
            known = WorkerFacts(
                row.id,
                incarnation,
                frozenset(row.queues),
                frozenset(row.kinds),
                frozenset(row.labels.items()),
            )
            self.workers.put(incarnation, known)
        return known


def _make_version(facts: Any, rows: Sequence[Any]) -> VersionDefinition:
    return VersionDefinition(
        facts.id,
        facts.workflow_id,
        tuple(row.id for row in rows),
        frozenset(row.id for row in rows if row.upstream_count == 0 or row.trigger_rule == "always"),
        frozenset(row.id for row in rows if row.is_gated),
        facts.run_timeout_seconds,
        declare(facts.params) if facts.params else None,
        frozenset(row.id for row in rows if row.is_branch),
        facts.is_watched,
    )
