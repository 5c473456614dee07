"""HTTP tasks against a real server on the loopback, and addresses that must not be reached."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from aiohttp import web

from rota.domain.work import AttemptKey, Finished
from rota.outbound.addresses import AddressPolicy
from rota.outbound.replies import read_retry_after
from tests.servers.sink import Sink, serve
from tests.worker.driver import make_assignment

LOOPBACK = ("127.0.0.0/8", "::1/128")


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = Sink()
    runner = await serve(sink)
    yield sink
    await runner.cleanup()


@pytest.fixture
def call(source, start_worker):
    """Runs one HTTP task and answers its result."""

    async def call(url: str, options: dict[str, Any] | None = None, **http: Any) -> Finished:
        outer = {name: http.pop(name) for name in ("output", "timeout_seconds", "traceparent") if name in http}
        await start_worker(**({"http_allow": LOOPBACK} | (options or {})))
        await source.offer(make_assignment(1, kind="http", http={"url": url, **http}, **outer))
        return (await source.until_finished())[0]

    return call


async def test_json_comes_back_as_output(call, sink):
    finished = await call(
        f"{sink.url}/x", method="POST", payload={"a": [1]}, headers={"X-Mine": "1"}, traceparent="00-1"
    )
    assert (finished.status, finished.http_status, finished.output) == ("success", 200, {"ok": True})
    method, path, headers, body = sink.requests[0]
    assert (method, path, body) == ("POST", "/x", b'{"a":[1]}')
    assert headers["content-type"] == "application/json"
    assert headers["x-mine"] == "1"
    assert headers["idempotency-key"] == "key-1"
    assert headers["traceparent"] == "00-1"
    assert "webhook-id" not in headers


@pytest.mark.parametrize(
    ("answer", "form", "output"),
    [
        ({"text": "plain"}, "json", "plain"),
        ({"text": '{"a":1}', "content_type": "application/problem+json"}, "json", {"a": 1}),
        ({"text": '{"a":1}', "content_type": "application/json"}, "text", '{"a":1}'),
        ({"text": '{"a":1}', "content_type": "application/json"}, "none", None),
        ({"status": 204}, "json", None),
    ],
)
async def test_forms_of_output(call, sink, answer, form, output):
    sink.handler = lambda request: web.Response(**answer)
    finished = await call(sink.url, output=form)
    assert (finished.status, finished.output) == ("success", output)


@pytest.mark.parametrize(
    ("status", "expect", "outcome"),
    [
        (404, None, "failed"),
        (404, [404], "success"),
        (404, ["4xx"], "success"),
        (200, [201], "failed"),
        (500, ["2xx"], "failed"),
    ],
)
async def test_expected_statuses(call, sink, status, expect, outcome):
    sink.handler = lambda request: web.Response(status=status, text="because")
    finished = await call(sink.url, **({"expect": expect} if expect else {}))
    assert (finished.status, finished.http_status) == (outcome, status)
    if outcome == "failed":
        assert finished.error_type == "http_error"


async def test_the_answer_of_a_failure_is_in_the_log(call, sink, source):
    sink.handler = lambda request: web.Response(status=500, text="the reason why")
    await call(sink.url + "/path?token=abc")
    assert b"500 Internal Server Error" in source.log()
    assert b"the reason why" in source.log()
    assert b"token" not in source.log()


@pytest.mark.parametrize("secret", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
async def test_signature_verifies(call, sink, secret):
    await call(sink.url, method="POST", payload={"hello": "wörld"}, secret=secret)
    _, _, headers, body = sink.requests[0]
    assert standardwebhooks.Webhook(secret).verify(body, headers) == {"hello": "wörld"}
    assert headers["webhook-id"] == "key-1"


async def test_two_secrets_sign_side_by_side(call, sink):
    secrets = ["whsec_" + "A" * 32, "whsec_" + "B" * 32]
    await call(sink.url, method="POST", body='"x"', secret=" ".join(secrets))
    _, _, headers, body = sink.requests[0]
    for secret in secrets:
        assert standardwebhooks.Webhook(secret).verify(body, headers) == "x"


async def test_webhook_id_is_stable_over_tries(source, start_worker, sink):
    await start_worker(http_allow=LOOPBACK)
    spec = {"url": sink.url, "method": "POST", "payload": 1, "secret": "whsec_" + "A" * 32}
    for attempt in (1, 2):
        await source.offer(make_assignment(7, kind="http", http=spec, attempt=attempt))
        await source.until_finished(attempt)
    identifiers = {headers["webhook-id"] for _, _, headers, _ in sink.requests}
    assert identifiers == {"key-7"}
    assert [headers["x-rota-attempt"] for _, _, headers, _ in sink.requests] == ["1", "2"]


async def test_retry_after_is_passed_on(call, sink):
    sink.handler = lambda request: web.Response(status=503, headers={"Retry-After": "17"})
    finished = await call(sink.url)
    assert (finished.error_type, finished.retry_after_seconds) == ("http_error", 17.0)


def test_retry_after_in_all_its_forms():
    now = 1_800_000_000.0
    instant = datetime.datetime.fromtimestamp(now + 90, datetime.UTC)
    assert read_retry_after("120", now) == 120
    assert read_retry_after(" 0 ", now) == 0
    assert read_retry_after(email.utils.format_datetime(instant, usegmt=True), now) == 90
    assert read_retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now) == 0
    assert read_retry_after("9" * 500, now) == 7 * 86_400
    for nonsense in (None, "", "soon", "-5", "1.5", "٣"):
        assert read_retry_after(nonsense, now) is None


async def test_redirects_fail_by_default(call, sink):
    sink.handler = lambda request: web.Response(status=302, headers={"Location": "/elsewhere"})
    finished = await call(sink.url)
    assert (finished.status, finished.error_type, finished.http_status) == ("failed", "http_error", 302)
    assert "redirects are not followed (to /elsewhere)" in finished.error
    assert len(sink.requests) == 1


async def test_redirects_are_followed_on_request_without_credentials_for_others(call, sink):
    other = Sink()
    runner = await serve(other)
    try:
        sink.handler = lambda request: web.Response(status=307, headers={"Location": other.url + "/there"})
        finished = await call(
            sink.url, method="POST", payload=1, follow_redirects=True, headers={"Authorization": "Bearer x"}
        )
    finally:
        await runner.cleanup()
    assert finished.status == "success"
    method, path, headers, body = other.requests[0]
    assert (method, path, body) == ("POST", "/there", b"1")
    assert "authorization" not in headers


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://[::1]:9/"])
async def test_a_redirect_cannot_lead_inside(call, sink, target):
    sink.handler = lambda request: web.Response(status=302, headers={"Location": target})
    finished = await call(sink.url, {"http_allow": ("127.0.0.1/32",)}, follow_redirects=True)
    assert (finished.status, finished.error_type) == ("failed", "bad_task")
    assert len(sink.requests) == 1


async def test_redirect_loops_end(call, sink):
    sink.handler = lambda request: web.Response(status=302, headers={"Location": "/again"})
    finished = await call(sink.url, follow_redirects=True)
    assert "more than 5 redirects" in finished.error
    assert len(sink.requests) == 6


@pytest.mark.parametrize(
    ("url", "error_type", "sentence"),
    [
        ("http://127.0.0.1:1/", "connection_error", "Cannot connect"),
        ("http://no-such-host.invalid/", "dns_error", "cannot be resolved"),
        ("ftp://example.com/", "bad_task", "expected http"),
        ("http:///nohost", "bad_task", "http.url"),
    ],
)
async def test_failures_are_told_apart(call, url, error_type, sentence):
    finished = await call(url)
    assert (finished.status, finished.error_type) == ("failed", error_type)
    assert sentence in finished.error


def make_certificate(certificate: Path, private: Path) -> None:
    subject = ["-days", "1", "-subj", "/CN=x", "-keyout", str(private), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run(command, check=True, capture_output=True)


async def test_tls_errors_say_so(call, sink, tmp_path):
    certificate, private = tmp_path / "c.pem", tmp_path / "k.pem"
    make_certificate(certificate, private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, private)
    secure = Sink()
    runner = await serve(secure, context)
    try:
        finished = await call(secure.url)
    finally:
        await runner.cleanup()
    assert finished.error_type == "connection_error"
    assert finished.error.startswith("TLS: ")
    assert secure.requests == []


async def hang(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"drip")
    await asyncio.Event().wait()
    return response


@pytest.mark.parametrize(("options", "fields"), [({"http_timeout_seconds": 0.2}, {}), ({}, {"timeout_seconds": 0.2})])
async def test_an_answer_that_drips_for_ever_times_out(call, sink, options, fields):
    sink.handler = hang
    finished = await call(sink.url, options, **fields)
    assert (finished.status, finished.error_type) == ("failed", "timeout")


async def test_cancel_ends_the_request(source, start_worker, sink):
    sink.handler = hang
    await start_worker(http_allow=LOOPBACK)
    await source.offer(make_assignment(1, kind="http", http={"url": sink.url}))
    await source.until(lambda: len(sink.requests) == 1)
    source.cancel = {AttemptKey("task-run-1", 1)}
    source.order()
    assert (await source.until_finished())[0].status == "cancelled"


async def test_a_server_that_hangs_up(call, sink):
    def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    sink.handler = hang_up
    finished = await call(sink.url)
    assert finished.error_type == "connection_error"


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_large_answer_is_cut_and_refused(call, sink, is_packed):
    content = b"x" * 20_000_000
    headers = {"Content-Encoding": "deflate"} if is_packed else {}
    body = zlib.compress(content) if is_packed else content
    sink.handler = lambda request: web.Response(body=body, headers=headers)
    finished = await call(sink.url)
    assert (finished.status, finished.error_type) == ("failed", "bad_output")
    assert "1,048,576 are allowed" in finished.error


async def test_broken_json_is_bad_output(call, sink):
    sink.handler = lambda request: web.Response(body=b"{", content_type="application/json")
    finished = await call(sink.url)
    assert finished.error_type == "bad_output"


async def test_connections_are_kept_and_shared(source, start_worker, sink):
    await start_worker(http_allow=LOOPBACK, concurrency=1)
    await source.offer(*(make_assignment(number, kind="http", http={"url": sink.url}) for number in range(20)))
    await source.until_finished(20)
    assert len(sink.requests) == 20
    assert len(sink.transports) == 1


# -- addresses ------------------------------------------------------------------------------------------------

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "fec0::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "::127.0.0.1",
    "2001:db8::1",
    "2001:0:0:0:0:0:80ff:fffe",
    "fe80::1%eth0",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2a00:1450::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused(address):
    assert not AddressPolicy().permits(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_permitted(address):
    assert AddressPolicy().permits(address)


def test_ranges_can_be_allowed():
    policy = AddressPolicy(["10.1.0.0/16", "fd00::/8"])
    assert policy.permits("10.1.2.3")
    assert policy.permits("::ffff:10.1.2.3")
    assert policy.permits("fd12::1")
    assert not policy.permits("10.2.0.1")
    assert not policy.permits("127.0.0.1")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "127.1", "0", "017700000001"],
)
async def test_no_spelling_of_the_loopback_gets_through(call, sink, host):
    port = sink.url.rpartition(":")[2]
    finished = await call(f"http://{host}:{port}/", {"http_allow": ()})
    assert (finished.status, finished.error_type) == ("failed", "bad_task")
    assert sink.requests == []
