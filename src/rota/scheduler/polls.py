"""Asking the addresses that waits for HTTP name, outside of any transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from types import TracebackType

import structlog

from rota.domain.errors import RotaError
from rota.domain.work import ErrorType
from rota.engine.engine import Engine
from rota.engine.gather import Gatherer
from rota.engine.polls import Poll, PollResult
from rota.outbound.caller import Caller, Reply, explain_failure, is_expected
from rota.outbound.replies import read_body, read_retry_after

log = structlog.get_logger(__name__)

POLL_SECONDS = 1.0
# How long one answer may take: shorter than a poll is ours.
ANSWER_SECONDS = 20.0
MOST_AT_ONCE = 100
MAX_BODY_BYTES = 1_000_000


class PollDuty:
    """Takes what is due and asks, many at once; open while it is used as a context.

    A round does not wait for the answers: a slow server delays nobody else."""

    name = "poll"
    interval_seconds = POLL_SECONDS

    def __init__(self, engine: Engine, http_allow: Iterable[str] = ()) -> None:
        self._engine = engine
        self._caller = Caller(http_allow, MAX_BODY_BYTES + 1)
        self._asking: set[asyncio.Task[None]] = set()
        self._results: Gatherer[PollResult, None] = Gatherer(self._tell)

    async def __aenter__(self) -> PollDuty:
        await self._caller.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was asked and not answered is asked again by another node, or after the next start."""
        for task in self._asking:
            task.cancel()
        await self.join()
        await self._caller.close()

    async def join(self) -> None:
        """Waits for the answers to all that has been asked."""
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def run_once(self) -> int:
        """Asks for all that is due, as long as it may ask more; how many that was."""
        done = 0
        while (free := MOST_AT_ONCE - len(self._asking)) > 0:
            polls = await self._engine.polls.take(free)
            for poll in polls:
                task = asyncio.create_task(self._ask(poll), name="rota-poll")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
            done += len(polls)
            if not polls:
                break
        return done

    async def _ask(self, poll: Poll) -> None:
        try:
            await self._results.call(await self._call(poll))
        except RotaError as error:
            # It is due again after a while.
            log.warning("poll_untold", task_run_id=poll.task_run_id, reason=error.detail)
        except Exception:
            log.exception("poll_failed", task_run_id=poll.task_run_id)

    async def _tell(self, results: Sequence[PollResult]) -> Sequence[None]:
        await self._engine.polls.tell(results)
        return [None] * len(results)

    async def _call(self, poll: Poll) -> PollResult:
        if poll.fault is not None:
            return PollResult(poll, False, poll.fault, error_type=ErrorType.BAD_TASK)
        limit_seconds = min(ANSWER_SECONDS, ANSWER_SECONDS if poll.seconds_left is None else poll.seconds_left)
        if limit_seconds <= 0:
            return PollResult(poll, False, "")
        http = poll.request
        headers = {str(name): str(value) for name, value in (http.get("headers") or {}).items()}
        try:
            async with asyncio.timeout(limit_seconds):
                reply = await self._caller.call(str(http.get("method", "GET")), str(http["url"]), headers, None)
        except Exception as error:
            error_type, sentence = explain_failure(error)
            if error_type is ErrorType.EXCEPTION:
                log.exception("poll_failed", task_run_id=poll.task_run_id)
            is_hopeless = error_type is ErrorType.BAD_TASK
            return PollResult(poll, False, sentence, error_type=error_type if is_hopeless else None)
        return judge(poll, reply)


def judge(poll: Poll, reply: Reply) -> PollResult:
    """Whether this answer is the one that is waited for."""
    sentence = f"status {reply.status} {reply.reason}".strip()
    if not is_expected(reply.status, poll.request.get("expect") or ("2xx",)):
        pause_seconds = read_retry_after(reply.headers.get("Retry-After"), time.time()) or 0.0
        return PollResult(poll, False, sentence, retry_after_seconds=pause_seconds)
    try:
        return PollResult(poll, True, sentence, read_body(poll.output, reply, MAX_BODY_BYTES))
    except ValueError as error:
        return PollResult(poll, False, str(error), error_type=ErrorType.BAD_OUTPUT)
