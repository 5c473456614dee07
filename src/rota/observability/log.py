"""Logs: one JSON object per line, or coloured lines on a terminal. Everything goes to standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor


def configure_logging(level: str, log_format: str, *, stream: TextIO | None = None) -> None:
    """Sets up all logging of this process, that of libraries included. `log_format`: auto, json or console."""
    target = sys.stderr if stream is None else stream
    is_console = log_format == "console" or (log_format == "auto" and target.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=list(_rendering(is_console, target)), foreign_pre_chain=list(_shared())
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What libraries tell at "info" matters only when something is being looked for.
    root.setLevel(max(number, logging.WARNING) if number > logging.DEBUG else logging.INFO)
    logging.getLogger("rota").setLevel(number)


def bind_process(**facts: Any) -> None:
    """Puts facts about this process, such as the node's name, on every line from here on."""
    structlog.contextvars.bind_contextvars(**facts)


def _shared() -> Iterable[Processor]:
    return (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    )


def _rendering(is_console: bool, target: TextIO) -> Iterable[Processor]:
    yield structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if is_console:
        yield _shorten
        yield structlog.dev.ConsoleRenderer(
            colors=target.isatty(), pad_event_to=24, exception_formatter=structlog.dev.plain_traceback
        )
    else:
        # As text: the structured form carries local variables, and with them secrets.
        yield structlog.processors.format_exc_info
        yield structlog.processors.EventRenamer("message")
        yield _put_first
        yield structlog.processors.JSONRenderer()


def _shorten(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A person at a terminal knows the date and does not care which module speaks."""
    event["timestamp"] = str(event["timestamp"])[11:23]
    event.pop("logger", None)
    event.pop("node", None)
    return event


def _put_first(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """What every line has comes first, so that lines can be read one below the other."""
    first = {name: event.pop(name) for name in ("timestamp", "level", "message") if name in event}
    return {**first, **event}
