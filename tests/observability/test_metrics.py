"""Metrics: names are a contract, and no label grows without a bound."""

from __future__ import annotations

import re

from rota.observability import metrics as module
from rota.observability.metrics import Metrics
from tests.architecture.source import ROOT

OLDER_NAMES = (
    "scheduler_workflows_total",
    "scheduler_tasks_total",
    "scheduler_task_duration_seconds",
    "scheduler_workflow_failures_total",
    "scheduler_workflow_successes_total",
    "scheduler_worker_heartbeats_total",
    "scheduler_task_retries_total",
)


def _value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def test_the_older_names_are_kept():
    metrics = Metrics()
    metrics.count_workflow_runs("failed")
    metrics.count_workflow_runs("success")
    metrics.count_tasks("success")
    metrics.observe_task("success", 0.2)
    metrics.count_tasks("cancelled")
    metrics.count_heartbeat("w")
    metrics.count_retries("w", 1)
    assert _value(metrics, "scheduler_workflows_total", status="failed") == 1
    assert _value(metrics, "scheduler_workflow_failures_total") == 1
    assert _value(metrics, "scheduler_workflow_successes_total") == 1
    assert _value(metrics, "scheduler_tasks_total", status="success") == 1
    assert _value(metrics, "scheduler_task_duration_seconds_count", status="success") == 1
    assert _value(metrics, "scheduler_task_duration_seconds_count", status="cancelled") is None
    assert _value(metrics, "scheduler_worker_heartbeats_total", worker_id="w") == 1
    assert _value(metrics, "scheduler_task_retries_total", worker_id="w") == 1
    text = metrics.render().decode()
    assert all(f"\n{name}" in text for name in OLDER_NAMES)


def test_workers_that_come_and_go_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(module, "MOST_SERIES", 3)
    metrics = Metrics()
    for worker in ("a", "b", "c", "a", "d"):
        metrics.count_heartbeat(worker)
    found = {worker: _value(metrics, "scheduler_worker_heartbeats_total", worker_id=worker) for worker in "abcd"}
    assert found == {"a": 2, "b": None, "c": 1, "d": 1}


def test_queues_that_are_empty_again_are_no_longer_shown():
    metrics = Metrics()
    metrics.set_queues({"a": 3, "b": 1}, {"a": 9.5})
    metrics.set_queues({"b": 2}, {})
    assert _value(metrics, "rota_queue_tasks", queue="a") is None
    assert _value(metrics, "rota_queue_tasks", queue="b") == 2
    assert _value(metrics, "rota_queue_oldest_seconds", queue="a") is None


def test_duties_and_requests():
    metrics = Metrics()
    metrics.observe_duty("fire", 0.01, is_failed=True)
    metrics.observe_request("GET", "/workflows/{id}", 404, 0.001)
    assert _value(metrics, "rota_duty_failures_total", duty="fire") == 1
    labels = {"method": "GET", "route": "/workflows/{id}", "status": "4xx"}
    assert _value(metrics, "rota_http_request_seconds_count", **labels) == 1


def test_two_processes_in_one_do_not_share_their_counts():
    one, other = Metrics(), Metrics()
    one.count_claims(5)
    assert _value(one, "rota_claims_total") == 5
    assert _value(other, "rota_claims_total") == 0


def test_every_metric_is_documented():
    families = {family.name + ("_total" if family.type == "counter" else "") for family in Metrics().registry.collect()}
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_]+)", page, flags=re.MULTILINE)) == families
