"""What a line of the log looks like."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from rota.observability.log import bind_process, configure_logging


@pytest.fixture(autouse=True)
def _restore():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("rota").setLevel(logging.NOTSET)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def _lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_the_bound_context():
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    bind_process(node="n-1")
    structlog.get_logger("rota.x").bind(run_id="r-1").warning("task_ended", attempt=2)
    (line,) = _lines(stream)
    assert line["message"] == "task_ended"
    assert (line["node"], line["run_id"], line["attempt"], line["level"]) == ("n-1", "r-1", 2, "warning")
    assert line["timestamp"].endswith("Z")
    assert line["logger"] == "rota.x"


def _fail(secret):
    assert secret
    raise ValueError("no\nway")


def test_an_exception_stays_on_its_line_and_tells_no_secrets():
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    try:
        _fail("-".join(("very", "secret")))
    except ValueError:
        structlog.get_logger("rota").exception("failed", duty="fire")
    (line,) = _lines(stream)
    assert "ValueError: no\nway" in line["exception"]
    assert "very-secret" not in stream.getvalue()
    assert line["duty"] == "fire"


def test_libraries_log_in_the_same_shape_but_only_what_matters():
    stream = io.StringIO()
    configure_logging("info", "json", stream=stream)
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("broken %s", "pipe")
    logging.getLogger("some.library").info("hello")
    logging.getLogger("rota.x").info("here")
    assert [line["message"] for line in _lines(stream)] == ["broken pipe", "here"]


def test_libraries_tell_more_when_something_is_being_looked_for():
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    logging.getLogger("some.library").info("hello")
    assert [line["message"] for line in _lines(stream)] == ["hello"]


def test_the_level_is_obeyed():
    stream = io.StringIO()
    configure_logging("warning", "json", stream=stream)
    structlog.get_logger("rota").info("quiet")
    structlog.get_logger("rota").error("loud")
    assert [line["message"] for line in _lines(stream)] == ["loud"]


def test_a_stream_that_is_no_terminal_gets_json_unless_told_otherwise():
    stream = io.StringIO()
    configure_logging("info", "auto", stream=stream)
    structlog.get_logger("rota").info("one")
    assert _lines(stream)
    stream = io.StringIO()
    configure_logging("info", "console", stream=stream)
    structlog.get_logger("rota.x").info("started", port=1)
    assert "started" in stream.getvalue()
    assert "port=1" in stream.getvalue()
    assert "{" not in stream.getvalue()
