"""Metrics for Prometheus. The `scheduler_…` names are those of the older systems; ours begin with `rota_`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from rota.observability.outcomes import Outcomes

# Series per metric for labels that the user's own names fill: the least recently used goes first.
MOST_SERIES = 1_000
TASK_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400)
LATENCY_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Everything that one process counts. Each instance has its own registry."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # What `/health` tells of; Prometheus has the counters.
        self.outcomes = Outcomes()
        self._recent: dict[int, OrderedDict[str, None]] = {}
        self._make_older_metrics()
        self._make_queue_metrics()
        self._make_process_metrics()
        self._make_cluster_metrics()
        self._make_event_metrics()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)

    # --- the older names ------------------------------------------------------------------------------------------

    def count_workflow_runs(self, status: str, count: int = 1) -> None:
        """Workflow runs came to this state."""
        self._workflows.labels(status).inc(count)
        if status == "failed":
            self._workflow_failures.inc(count)
        elif status == "success":
            self._workflow_successes.inc(count)

    def count_tasks(self, status: str, count: int = 1) -> None:
        """Task runs came to this state."""
        self._tasks.labels(status).inc(count)
        if status in ("success", "failed"):
            self.outcomes.add(count, are_failures=status == "failed")

    def observe_task(self, status: str, seconds: float) -> None:
        """An attempt ended after this long."""
        self._task_seconds.labels(status).observe(seconds)

    def count_heartbeat(self, worker_id: str) -> None:
        """A worker said that it is alive."""
        self._bounded(self._heartbeats, worker_id).inc()

    def count_retries(self, worker_id: str, count: int) -> None:
        """Task runs go to a worker that has to try them again."""
        self._bounded(self._retries, worker_id).inc(count)

    # --- queue and claims -----------------------------------------------------------------------------------------

    def set_queues(self, depths: Mapping[str, int], oldest_seconds: Mapping[str, float]) -> None:
        """What waits now, by queue. Queues that are not named are empty."""
        for gauge, values in ((self._queue_depth, depths), (self._queue_age, oldest_seconds)):
            gauge.clear()
            for queue in sorted(values)[:MOST_SERIES]:
                gauge.labels(queue).set(values[queue])

    def count_claims(self, count: int) -> None:
        """Task runs were handed to a worker."""
        self._claims.inc(count)

    def observe_start(self, waited_seconds: float) -> None:
        """A task run started, this long after it was ready."""
        self._start_seconds.observe(waited_seconds)

    def count_late_results(self, count: int) -> None:
        """Results came from workers that no longer held the attempts."""
        self._late_results.inc(count)

    def count_lost_attempts(self, count: int) -> None:
        """Attempts were taken away from workers that had fallen silent."""
        self._lost_attempts.inc(count)

    def count_refusals(self, reason: str) -> None:
        """Something was not taken: `jobs`, `memory` or `namespace` is full."""
        self._refusals.labels(reason).inc()

    def set_capacity(self, used: int, limit: int) -> None:
        """How much waits to be done, and how much may."""
        self._capacity_used.set(used)
        self._capacity_limit.set(limit)

    # --- schedules and duties ---------------------------------------------------------------------------------------

    def observe_tick(self, lateness_seconds: float) -> None:
        """A schedule fired, this long after its instant."""
        self._lateness.observe(max(0.0, lateness_seconds))

    def count_ticks(self, decision: str, count: int = 1) -> None:
        """Ticks were decided: `fired` or `skipped`."""
        self._ticks.labels(decision).inc(count)

    def observe_duty(self, duty: str, seconds: float, *, is_failed: bool) -> None:
        """One round of a periodic duty took this long."""
        self._duty_seconds.labels(duty).observe(seconds)
        if is_failed:
            self._duty_failures.labels(duty).inc()

    # --- cluster ------------------------------------------------------------------------------------------------------

    def set_leader(self, *, is_leader: bool) -> None:
        """Whether this node leads now."""
        self._leader.set(is_leader)

    def count_leader_change(self) -> None:
        """This node has learnt of a new leader."""
        self._leader_changes.inc()

    # --- live events --------------------------------------------------------------------------------------------------

    def observe_event_lag(self, seconds: float) -> None:
        """A change was relayed this long after it was made."""
        self._event_lag.observe(seconds)

    def set_followers(self, count: int) -> None:
        """So many follow the events now."""
        self._followers.set(count)

    def count_delivered(self, sink: str, count: int) -> None:
        """Events were delivered to somebody who keeps them."""
        self._bounded(self._delivered, sink).inc(count)

    def count_delivery_failure(self, sink: str) -> None:
        """Somebody did not take the events."""
        self._bounded(self._delivery_failures, sink).inc()

    # --- API and worker -----------------------------------------------------------------------------------------------

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request was answered; `route` is the pattern, not the path."""
        self._requests.labels(method, route, f"{status // 100}xx").observe(seconds)

    def set_worker(self, *, running: int, is_healthy: bool) -> None:
        """What a worker process executes now, and whether its server answers."""
        self._running.set(running)
        self._healthy.set(is_healthy)

    # --- making them --------------------------------------------------------------------------------------------------

    def _make_older_metrics(self) -> None:
        self._workflows = self._counter("scheduler_workflows", "Workflow runs that came to a state", "status")
        self._tasks = self._counter("scheduler_tasks", "Task runs that came to a state", "status")
        self._task_seconds = self._histogram(
            "scheduler_task_duration_seconds", "How long task runs took", TASK_SECONDS, "status"
        )
        self._workflow_failures = self._counter("scheduler_workflow_failures", "Workflow runs that failed")
        self._workflow_successes = self._counter("scheduler_workflow_successes", "Workflow runs that succeeded")
        self._heartbeats = self._counter("scheduler_worker_heartbeats", "Heartbeats of workers", "worker_id")
        self._retries = self._counter("scheduler_task_retries", "Task runs tried again", "worker_id")

    def _make_queue_metrics(self) -> None:
        self._queue_depth = self._gauge("rota_queue_tasks", "Task runs that wait for a worker", "queue")
        self._queue_age = self._gauge("rota_queue_oldest_seconds", "Age of the oldest waiting task run", "queue")
        self._claims = self._counter("rota_claims", "Task runs handed to workers")
        self._start_seconds = self._histogram("rota_start_latency_seconds", "From ready to started", LATENCY_SECONDS)
        self._late_results = self._counter("rota_late_results", "Results of attempts that were no longer held")
        self._lost_attempts = self._counter("rota_lost_attempts", "Attempts taken away from silent workers")

    def _make_process_metrics(self) -> None:
        self._refusals = self._counter("rota_refusals", "Calls refused because too much waits", "reason")
        self._capacity_used = self._gauge("rota_capacity_jobs", "Jobs that wait to be done")
        self._capacity_limit = self._gauge("rota_capacity_jobs_limit", "Jobs that may wait; 0: no limit")
        self._lateness = self._histogram("rota_schedule_lateness_seconds", "How late ticks fire", LATENCY_SECONDS)
        self._ticks = self._counter("rota_schedule_ticks", "Ticks of schedules, by decision", "decision")
        self._duty_seconds = self._histogram("rota_duty_seconds", "Rounds of duties", LATENCY_SECONDS, "duty")
        self._duty_failures = self._counter("rota_duty_failures", "Rounds of duties that failed", "duty")
        self._requests = self._histogram(
            "rota_http_request_seconds", "Requests to the API", LATENCY_SECONDS, "method", "route", "status"
        )
        self._running = self._gauge("rota_worker_running", "Tasks that this worker executes now")
        self._healthy = self._gauge("rota_worker_healthy", "1 while the server answers this worker")

    def _make_cluster_metrics(self) -> None:
        self._leader = self._gauge("rota_leader", "1 while this node leads")
        self._leader_changes = self._counter("rota_leader_changes", "New leaders that this node has learnt of")

    def _make_event_metrics(self) -> None:
        self._event_lag = self._histogram("rota_event_lag_seconds", "From a change to its relay", LATENCY_SECONDS)
        self._delivered = self._counter("rota_events_delivered", "Events delivered to a sink", "sink")
        self._delivery_failures = self._counter("rota_event_delivery_failures", "Deliveries that failed", "sink")
        self._followers = self._gauge("rota_event_followers", "Clients that follow the events")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _bounded(self, metric: Counter, label: str) -> Counter:
        """The series of this label; the one that has been silent for longest makes room for it."""
        recent = self._recent.setdefault(id(metric), OrderedDict())
        if label not in recent and len(recent) >= MOST_SERIES:
            metric.remove(recent.popitem(last=False)[0])
        recent[label] = None
        recent.move_to_end(label)
        return metric.labels(label)
