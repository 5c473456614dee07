"""create_workflow and apply_workflow: versions are made only when the content changed; schedules keep their cursors."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from rota.domain.errors import Conflict, InvalidInput, NotFound, StaleVersion
from rota.engine.submit import RunRequest
from rota.store.tables import task_dependencies, tasks, workflow_runs, workflow_versions
from tests.engine.stage import Stage, task, workflow


async def _count_versions(stage: Stage) -> int:
    ((count,),) = await stage.rows(select(func.count()).select_from(workflow_versions))
    return int(count)


async def test_a_new_workflow_is_version_one(stage: Stage):
    defined = await stage.engine.create_workflow(workflow(task("a"), task("b", "a")))
    assert (defined.version, defined.is_new, defined.is_changed) == (1, True, True)
    found = await stage.find()
    assert (found.current_version, found.max_active_runs) == (1, 16)
    rows = {row.name: row for row in await stage.rows(select(tasks))}
    assert {name: (row.upstream_count, row.downstream_count) for name, row in rows.items()} == {
        "a": (0, 1),
        "b": (1, 0),
    }
    ((edge,),) = await stage.rows(select(task_dependencies.c.depends_on_task_id))
    assert edge == rows["a"].id


async def test_a_taken_name_is_refused(stage: Stage):
    await stage.engine.create_workflow(workflow(task("a")))
    with pytest.raises(Conflict, match="flow"):
        await stage.engine.create_workflow(workflow(task("b")))
    assert await _count_versions(stage) == 1


async def test_two_namespaces_may_use_one_name(stage: Stage):
    await stage.engine.create_workflow(workflow(task("a")))
    await stage.engine.create_workflow(workflow(task("a"), namespace="other"))
    assert (await stage.find()).id != (await stage.find(namespace="other")).id


async def test_applying_the_same_again_changes_nothing(stage: Stage):
    first = await stage.engine.apply_workflow(workflow(task("a"), schedule_cron="0 0 * * *"))
    before = await stage.find()
    again = await stage.engine.apply_workflow(workflow(task("a"), schedule_cron="0 0 * * *"))
    assert (again.id, again.version, again.is_new, again.is_changed) == (first.id, 1, False, False)
    assert await stage.find() == before
    assert await _count_versions(stage) == 1


async def test_changed_tasks_make_a_version_and_leave_the_old_one(stage: Stage):
    await stage.define(task("a"))
    run_id = await stage.submit((await stage.find()).id)
    changed = await stage.engine.apply_workflow(workflow(task("a"), task("b", "a")))
    assert (changed.version, changed.is_changed) == (2, True)
    assert await _count_versions(stage) == 2
    assert set(await stage.statuses(run_id)) == {"a"}
    assert set(await stage.statuses(await stage.submit(changed.id))) == {"a", "b"}


async def test_a_run_may_ask_for_an_old_version(stage: Stage):
    workflow_id = await stage.define(task("a"))
    old = (await stage.find()).current_version_id
    await stage.define(task("b"))
    run_id = await stage.submit(workflow_id, version_id=old)
    assert set(await stage.statuses(run_id)) == {"a"}


async def test_limits_change_without_a_new_version_id_for_old_runs(stage: Stage):
    await stage.define(task("a"), max_active_runs=1)
    await stage.define(task("a"), max_active_runs=3)
    assert (await stage.find()).max_active_runs == 3


async def test_a_higher_limit_starts_what_waits(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=1)
    first, second = [await stage.submit(workflow_id) for _ in range(2)]
    assert [await stage.run_status(run) for run in (first, second)] == ["running", "pending"]
    await stage.define(task("a"), max_active_runs=2)
    assert await stage.run_status(second) == "running"


async def test_apply_with_an_expected_version(stage: Stage):
    await stage.define(task("a"))
    version = (await stage.find()).version
    await stage.engine.apply_workflow(workflow(task("b")), expected_version=version)
    with pytest.raises(StaleVersion):
        await stage.engine.apply_workflow(workflow(task("c")), expected_version=version)
    assert (await stage.find()).current_version == 2


async def test_unchanged_schedules_keep_their_cursor(stage: Stage):
    workflow_id = await stage.define(task("a"), schedules=[{"schedule_cron": "0 0 * * *"}, {"interval_seconds": 90}])
    before = await stage.schedule_rows(workflow_id)
    stage.clock.advance(45)
    await stage.define(task("b"), schedules=[{"schedule_cron": "0 0 * * *"}, {"interval_seconds": 60}])
    after = await stage.schedule_rows(workflow_id)
    assert after[0] == before[0]
    assert after[1].id == before[1].id
    assert after[1].cursor_at == after[1].anchor_at == stage.clock.now


async def test_schedules_are_added_and_removed(stage: Stage):
    workflow_id = await stage.define(task("a"), schedules=[{"interval_seconds": 90}])
    kept = (await stage.schedule_rows(workflow_id))[0]
    await stage.define(task("a"), schedules=[{"interval_seconds": 90}, {"schedule_cron": "0 0 * * *"}])
    both = await stage.schedule_rows(workflow_id)
    assert both[0].id == kept.id
    assert len(both) == 2
    await stage.define(task("a"))
    assert await stage.schedule_rows(workflow_id) == []


async def test_a_pool_must_exist(stage: Stage):
    with pytest.raises(InvalidInput) as caught:
        await stage.define(task("a"), task("b", pool="gpu"))
    assert [error.field for error in caught.value.errors] == ["tasks[1].pool"]
    assert await stage.rows(select(workflow_versions)) == []
    await stage.add_pool("gpu", 2)
    await stage.define(task("a"), task("b", pool="gpu"))


async def test_a_workflow_is_deleted_with_its_past(stage: Stage):
    workflow_id = await stage.define(task("a"))
    run_id = await stage.submit(workflow_id)
    with pytest.raises(Conflict, match="cancel"):
        await stage.engine.delete_workflow(workflow_id)
    await stage.engine.cancel_run(run_id)
    await stage.engine.delete_workflow(workflow_id)
    assert await stage.rows(select(workflow_runs)) == []
    with pytest.raises(NotFound):
        await stage.engine.submit(RunRequest(workflow_id))


async def test_a_job_has_a_name_of_its_own_if_it_needs_none(stage: Stage):
    defined = await stage.engine.create_workflow(workflow(task("job"), name="", kind="job"))
    twin = await stage.engine.create_workflow(workflow(task("job"), name="", kind="job"))
    assert defined.id != twin.id
    run_id = await stage.submit(defined.id)
    assert await stage.work(await stage.register()) == ["job"]
    assert await stage.run_status(run_id) == "success"
