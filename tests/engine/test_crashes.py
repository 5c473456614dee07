"""A process dies by SIGKILL after each statement of each verb: what is stored stays whole, and the work finishes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.domain.work import WorkerIdentity
from tests.engine.crash_child import FLOW, KIN
from tests.engine.invariants import find_faults
from tests.engine.stage import LEASE_SECONDS, Stage, settle

ROOT = Path(__file__).resolve().parents[2]
MOST_STATEMENTS = 200
Arguments = dict[str, Any]


@pytest.fixture(scope="module")
def forker() -> Iterator[Callable[[dict[str, Any]], str]]:
    """A process that does one verb after another, each in a child that may be killed."""
    command = [sys.executable, "-m", "tests.engine.crash_child"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(case: dict[str, Any]) -> str:
            stdin.write(json.dumps(case) + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield ask
        stdin.close()
        process.wait(timeout=30)


class Scene:
    """One running run with a claimed task, a second run that waits for its turn, and a worker."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.arguments: Arguments = {}
        self.worker: WorkerIdentity

    async def play(self) -> None:
        stage = self.stage
        await stage.add_pool("small", 1)
        workflow_id = (await stage.engine.apply_workflow(FLOW)).id
        first, second = [await stage.submit(workflow_id) for _ in range(2)]
        self.worker = await stage.register()
        self.arguments = {
            "workflow": workflow_id,
            "run": first,
            "waiting_run": second,
            "worker": [self.worker.worker_id, self.worker.incarnation],
            "claim": 0,
            "status": "success",
        }

    async def hold(self) -> None:
        items = await self.stage.claim(self.worker)
        self.arguments["held"] = [(item.task_run_id, item.attempt) for item in items]
        self.arguments["task_run"] = items[0].task_run_id


async def _nothing(_scene: Scene) -> None:
    pass


async def _hold(scene: Scene) -> None:
    await scene.hold()


async def _hold_and_expire(scene: Scene) -> None:
    await scene.hold()
    scene.stage.clock.advance(LEASE_SECONDS + 1)


async def _hold_the_last(scene: Scene) -> None:
    """All but clean-up is done: the report ends the run and starts the next."""
    for _ in range(3):
        await scene.stage.finish(scene.worker, await scene.stage.claim(scene.worker))
    await scene.hold()


async def _report_failed(scene: Scene) -> None:
    await scene.hold()
    scene.arguments |= {"status": "failed", "claim": 5}


async def _report_failed_for_good(scene: Scene) -> None:
    await scene.stage.finish(scene.worker, await scene.stage.claim(scene.worker), "failed")
    scene.stage.clock.advance(5)
    await scene.stage.engine.release_due()
    await _report_failed(scene)


async def _wait_for_retry(scene: Scene) -> None:
    await scene.stage.finish(scene.worker, await scene.stage.claim(scene.worker), "failed")
    scene.stage.clock.advance(10)


async def _fail_run(scene: Scene) -> None:
    for _ in range(2):
        await scene.stage.work(scene.worker, {"a": "failed"})
        scene.stage.clock.advance(6)
        await scene.stage.engine.release_due()
    assert await scene.stage.run_status(scene.arguments["run"]) == "failed"


async def _cancel_waiting(scene: Scene) -> None:
    scene.arguments["run"] = scene.arguments["waiting_run"]


async def _cancel_one(scene: Scene) -> None:
    scene.arguments["task_run"] = await scene.stage.task_run_id(scene.arguments["run"], "a")


async def _tick(scene: Scene) -> None:
    scene.stage.clock.advance(60)


async def _overdue(scene: Scene) -> None:
    await scene.hold()
    scene.stage.clock.advance(150)


async def _call(scene: Scene) -> None:
    """One run that waits for another, which has started."""
    stage = scene.stage
    await settle(stage)
    for spec in KIN:
        await stage.engine.apply_workflow(spec)
    scene.arguments["workflow"] = (await stage.find("calling")).id
    scene.arguments["run"] = await stage.submit(scene.arguments["workflow"])
    await stage.follow()
    scene.worker = await stage.register()
    scene.arguments["worker"] = [scene.worker.worker_id, scene.worker.incarnation]


async def _hold_called(scene: Scene) -> None:
    await _call(scene)
    await scene.hold()


async def _end_called(scene: Scene) -> None:
    """The run has ended, and nobody has been told."""
    await _call(scene)
    scene.stage.engine._core.follow_up.work = None
    await scene.stage.finish(scene.worker, await scene.stage.claim(scene.worker))


async def _cancel_caller(scene: Scene) -> None:
    await _call(scene)
    scene.stage.engine._core.follow_up.work = None
    await scene.stage.engine.cancel_run(scene.arguments["run"])


async def _all_ended(scene: Scene) -> None:
    await settle(scene.stage)
    scene.stage.clock.advance(1000)


SCENES: list[tuple[str, Callable[[Scene], Any]]] = [
    ("create", _nothing),
    ("apply", _nothing),
    ("pause", _nothing),
    ("delete", _all_ended),
    ("submit", _nothing),
    ("claim", _nothing),
    ("report", _hold),
    ("report", _hold_the_last),
    ("report", _report_failed),
    ("report", _report_failed_for_good),
    ("renew", _hold),
    ("register", _nothing),
    ("leave", _hold),
    ("doubt", _hold),
    ("drain", _nothing),
    ("cancel_run", _hold),
    ("cancel_run", _nothing),
    ("cancel_run", _cancel_waiting),
    ("cancel_task_run", _cancel_one),
    ("cancel_task_run", _hold),
    ("retry_run", _fail_run),
    ("submit", _call),
    ("report", _hold_called),
    ("cancel_run", _hold_called),
    ("follow", _end_called),
    ("follow", _cancel_caller),
    ("fire", _tick),
    ("release_due", _wait_for_retry),
    ("reap_attempts", _hold_and_expire),
    ("reap_workers", _hold_and_expire),
    ("reap_runs", _overdue),
    ("prune", _all_ended),
]


@pytest.mark.parametrize(("verb", "prepare"), SCENES, ids=[f"{verb}{scene.__name__}" for verb, scene in SCENES])
async def test_death_after_each_statement(
    stage: Stage, forker: Callable[[dict[str, Any]], str], verb: str, prepare: Callable[[Scene], Any]
):
    scene = Scene(stage)
    await scene.play()
    await prepare(scene)
    case = {"url": stage.url, "verb": verb, "arguments": scene.arguments, "now": stage.clock.now.isoformat()}
    deaths = 0
    for kill_after in range(1, MOST_STATEMENTS):
        outcome = forker({**case, "kill_after": kill_after})
        faults = await find_faults(stage.database)
        assert not faults, (kill_after, faults)
        if outcome != "killed":
            break
        deaths += 1
    else:
        pytest.fail(f"{verb} does not come to its end")
    assert outcome == "done"
    assert deaths >= 1
    # Whatever the dead processes and their workers held is taken up by others.
    await settle(stage)
