"""Logs: offsets, gaps, masks, and programs that write nastily."""

from __future__ import annotations

import itertools
import resource
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.work import AttemptKey, LogChunk
from rota.worker.logs import MASK, AttemptLog, Masker, TailBuffer, gap_marker
from tests.worker.driver import make_assignment


def make_log(head: int = 10, tail: int = 10, secrets: tuple[str, ...] = ()) -> tuple[AttemptLog, list[AttemptLog]]:
    dirty: list[AttemptLog] = []
    log = AttemptLog(AttemptKey("t", 1), head_bytes=head, tail_bytes=tail, on_dirty=dirty.append, secrets=secrets)
    return log, dirty


def pieces(chunks: list[LogChunk]) -> list[tuple[int, bytes]]:
    return [(chunk.offset, chunk.data) for chunk in chunks]


def test_chunks_carry_offsets_and_nothing_twice():
    log, dirty = make_log(head=100)
    log.write(b"abc")
    log.write(b"def")
    assert len(dirty) == 1
    assert pieces(log.take()) == [(0, b"abcdef")]
    assert log.take() == []
    log.write(b"g")
    assert len(dirty) == 2
    assert pieces(log.finish()) == [(6, b"g")]


def test_streams_are_kept_apart_in_order():
    log, _ = make_log(head=100)
    log.write(b"one", "stdout")
    log.write(b"two", "stderr")
    log.write(b"three", "stdout")
    found = [(chunk.stream, chunk.offset, chunk.data) for chunk in log.finish()]
    assert found == [("stdout", 0, b"one"), ("stderr", 3, b"two"), ("stdout", 6, b"three")]


def test_middle_is_left_out_and_the_gap_is_marked():
    log, _ = make_log(head=100, tail=50)
    content = bytes(range(256)) * 4
    log.write(content)
    chunks = log.finish()
    marker = gap_marker(1024 - 150)
    assert b"874 bytes" in marker
    assert pieces(chunks) == [
        (0, content[:100]),
        (1024 - 50 - len(marker), marker),
        (1024 - 50, content[-50:]),
    ]


def test_without_overflow_the_tail_follows_the_head():
    log, _ = make_log(head=5, tail=10)
    log.write(b"0123456789abc")
    assert b"".join(chunk.data for chunk in log.finish()) == b"0123456789abc"


def test_a_gap_too_small_for_a_line_is_a_jump_of_the_offset():
    log, _ = make_log(head=5, tail=5)
    log.write(b"0123456789AB")
    assert pieces(log.finish()) == [(0, b"01234"), (7, b"789AB")]


def test_a_closed_head_keeps_only_the_tail():
    log, _ = make_log(head=1000, tail=50)
    log.write(b"x" * 200)
    log.take()
    log.close_head()
    log.write(b"y" * 300)
    assert log.take() == []
    chunks = log.finish()
    assert chunks[-1].data == b"y" * 50
    assert chunks[-1].offset == 450


@given(
    parts=st.lists(st.binary(max_size=40), max_size=30),
    head=st.integers(0, 60),
    tail=st.integers(0, 60),
)
def test_what_is_kept_is_where_it_says(parts: list[bytes], head: int, tail: int):
    log, _ = make_log(head=head, tail=tail)
    chunks: list[LogChunk] = []
    for part in parts:
        log.write(part)
        chunks += log.take()
    chunks += log.finish()
    whole = b"".join(parts)
    assert log.total_bytes == len(whole)
    position = 0
    kept = 0
    for chunk in chunks:
        assert chunk.offset >= position
        position = chunk.offset + len(chunk.data)
        if not chunk.data.startswith(b"\n[rota: "):
            assert whole[chunk.offset : position] == chunk.data
            kept += len(chunk.data)
    assert kept == min(len(whole), head + tail)


@given(
    secrets=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3),
    text=st.text("abcd", max_size=80),
    cuts=st.lists(st.integers(0, 80), max_size=6),
)
def test_masking_does_not_depend_on_how_the_stream_is_cut(secrets: list[str], text: str, cuts: list[int]):
    data = text.encode()
    masker = Masker([secret.encode() for secret in secrets])
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    shown = b"".join(masker.feed(data[a:b]) for a, b in itertools.pairwise(edges)) + masker.flush()
    assert shown == Masker([secret.encode() for secret in secrets]).mask(data)
    # Masks apart, nothing of a secret is left.
    assert not any(secret.encode() in part for part in shown.split(MASK) for secret in secrets)


def test_only_what_may_be_a_secret_is_held_back():
    masker = Masker([b"hunter2"])
    assert masker.feed(b"the password is hun") == b"the password is "
    assert masker.feed(b"gry") == b"hungry"
    assert masker.feed(b"hunter2!") == b"***!"


def test_tail_buffer_keeps_the_end():
    buffer = TailBuffer(10)
    for _ in range(100):
        buffer.write(b"abc")
    assert buffer.read() == b"cabcabcabc"
    assert buffer.total_bytes == 300


# -- programs that write nastily ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (r"w(b'a\0b\0\n')", b"a\0b\0\n"),
        (r"w(b'10%\r20%\r30%\r\n')", b"10%\r20%\r30%\r\n"),
        (r"w(b'\xff\xfe\xc3(\n')", b"\xff\xfe\xc3(\n"),
        (r"w('žluť'.encode()[:3]); f(); w('žluť'.encode()[3:])", "žluť".encode()),
        (r"w(b'no newline')", b"no newline"),
        (r"[(w(b'.'), f()) for _ in range(5000)]", b"." * 5000),
    ],
)
async def test_bytes_come_through_as_they_are(source, start_worker, code, expected):
    await start_worker()
    program = f"import sys; w = sys.stdout.buffer.write; f = sys.stdout.buffer.flush; {code}"
    await source.offer(make_assignment(1, command=[sys.executable, "-c", program]))
    assert (await source.until_finished())[0].status == "success"
    assert source.log() == expected


async def test_a_line_of_ten_megabytes(source, start_worker):
    await start_worker()
    await source.offer(make_assignment(1, command="head -c 10000000 /dev/zero | tr '\\0' x; echo end"))
    assert (await source.until_finished())[0].status == "success"
    log = source.log()
    assert log.endswith(b"xend\n")
    assert b"bytes of the log left out here]\n" in log
    assert len(log) < 2 * 1024 * 1024 + 100
    assert source.chunks()[-1].offset + len(source.chunks()[-1].data) == 10_000_004


async def test_a_flood_takes_no_memory(source, start_worker):
    await start_worker()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await source.offer(make_assignment(1, command="head -c 200000000 /dev/zero", secrets=("hunter2",)))
    assert (await source.until_finished())[0].status == "success"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


async def test_secrets_are_masked_across_writes(source, start_worker):
    await start_worker()
    command = "printf 'pass=hun'; sleep 0.3; printf 'ter2 end'"
    await source.offer(make_assignment(1, command=command, secrets=("hunter2",)))
    await source.until_finished()
    assert source.log() == b"pass=*** end"


async def test_a_running_task_is_seen_live(source, start_worker):
    await start_worker()
    await source.offer(make_assignment(1, command="echo first; exec sleep 600"))
    await source.until(lambda: source.log() == b"first\n")
    assert source.finished == []


async def test_a_short_log_travels_with_its_result(source, start_worker):
    batches: list[int] = []
    report = source.report

    async def record(worker, reports, *, claim=0):
        batches.append(len(reports))
        return await report(worker, reports, claim=claim)

    source.report = record
    await start_worker(log_flush_seconds=60.0)
    await source.offer(make_assignment(1, command="echo hello"))
    await source.until_finished()
    assert batches == [2]
