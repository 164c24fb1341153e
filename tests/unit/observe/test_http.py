"""The HTTP server over real sockets, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from penstock.base.errors import InvariantBroken
from penstock.observe import http
from penstock.observe.health import Health
from penstock.observe.http import HttpRequest, HttpResponse, HttpServer
from penstock.observe.metrics import Metric, Registry

DEADLINE_S = 10.0
WELL = Health(live=True, ready=True, reason="serving")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Callable[..., None]:
    def run(
        test: Callable[[HttpServer], Awaitable[None]],
        *,
        registry: Registry | None = None,
        health: Callable[[], Health] = lambda: WELL,
    ) -> None:
        async def main() -> None:
            server = HttpServer(registry or Registry(), health)
            await server.start("127.0.0.1", 0)
            try:
                await asyncio.wait_for(test(server), DEADLINE_S)
            finally:
                await server.stop()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


async def connect(server: HttpServer) -> Streams:
    return await asyncio.open_connection(*server.address)


async def answer(
    reader: asyncio.StreamReader, *, body: bool = True
) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = head.rstrip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    length = int(headers["Content-Length"]) if body else 0
    return int(status.split(" ")[1]), headers, await reader.readexactly(length)


async def ask(server: HttpServer, raw: str) -> tuple[int, dict[str, str], bytes]:
    """The answer to one request on a connection of its own."""
    reader, writer = await connect(server)
    writer.write(raw.encode("latin-1"))
    found = await answer(reader)
    writer.close()
    return found


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait for the other side to close, orderly or not; false if it sends something."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def get(path: str, *headers: str) -> str:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""])


@contextmanager
def changed(name: str, value: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, name, value)
        yield


def test_metrics_are_prometheus_text(serve: Callable[..., None]) -> None:
    registry = Registry()
    registry.counter(Metric("penstock_things_total", "counter", "Things.")).value += 3

    async def test(server: HttpServer) -> None:
        status, headers, body = await ask(server, get("/metrics?name=x"))
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        (family,) = text_string_to_metric_families(body.decode())
        assert family.samples[0].value == 3

    serve(test, registry=registry)


@pytest.mark.parametrize(
    ("health", "live", "ready"),
    [
        (WELL, 200, 200),
        (Health(live=True, ready=False, reason="recovering 3 of 7 logs"), 200, 503),
        (Health(live=False, ready=False, reason="stopping"), 503, 503),
    ],
)
def test_health_tells_status_and_reason(
    serve: Callable[..., None], health: Health, live: int, ready: int
) -> None:
    async def test(server: HttpServer) -> None:
        for path, expected in (("/healthz", live), ("/readyz", ready)):
            status, headers, body = await ask(server, get(path))
            assert status == expected
            assert headers["Content-Type"] == "application/json"
            word = "ok" if expected == 200 else "unavailable"
            assert json.loads(body) == {"status": word, "reason": health.reason}

    serve(test, health=lambda: health)


def test_head_has_the_length_and_no_body(serve: Callable[..., None]) -> None:
    async def test(server: HttpServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"HEAD /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        status, headers, _ = await answer(reader, body=False)
        assert status == 200
        assert int(headers["Content-Length"]) > 0
        assert await reader.read() == b""
        writer.close()

    serve(test)


@pytest.mark.parametrize(
    ("raw", "status", "says"),
    [
        (get("/nothing"), 404, "/healthz"),
        ("POST /metrics HTTP/1.1\r\n\r\n", 405, "GET"),
        ("nonsense\r\n\r\n", 400, "request line"),
        ("GET / HTTP/2.0\r\n\r\n", 505, "HTTP/1.1"),
        (get("/metrics", "no colon"), 400, "header"),
        (get("/metrics", " folded: x"), 400, "header"),
        (get("/metrics", "Content-Length: 5") + "hello", 413, "body"),
        (get("/metrics", "Transfer-Encoding: chunked"), 413, "body"),
        (get("/metrics", "X: " + "x" * http.HEADER_BYTES_MAX), 431, str(http.HEADER_BYTES_MAX)),
        ("x" * (http.HEADER_BYTES_MAX + 1), 431, str(http.HEADER_BYTES_MAX)),
        ("\xff\x00\x01 \xfe\r\n\r\n", 400, "request line"),
    ],
)
def test_bad_requests_get_an_answer_that_says_why(
    serve: Callable[..., None], raw: str, status: int, says: str
) -> None:
    async def test(server: HttpServer) -> None:
        found, headers, body = await ask(server, raw)
        assert found == status
        assert says in json.loads(body)["error"]
        assert headers.get("Allow") == ("GET, HEAD" if status == 405 else None)

    serve(test)


def test_a_connection_is_kept_and_requests_may_be_pipelined(serve: Callable[..., None]) -> None:
    async def test(server: HttpServer) -> None:
        reader, writer = await connect(server)
        writer.write((get("/healthz") * 2 + get("/nothing")).encode())
        assert [(await answer(reader))[0] for _ in range(3)] == [200, 200, 404]
        for part in ("GET /rea", "dyz HTTP/1.1\r\nConnection: clo", "se\r\n\r", "\n"):
            writer.write(part.encode())
            await writer.drain()
            await asyncio.sleep(0.01)
        status, headers, _ = await answer(reader)
        assert (status, headers["Connection"]) == (200, "close")
        assert await reader.read() == b""
        writer.close()

    serve(test)


def test_http_1_0_is_closed_unless_it_asks_otherwise(serve: Callable[..., None]) -> None:
    async def test(server: HttpServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        assert (await answer(reader))[1]["Connection"] == "keep-alive"
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await answer(reader))[1]["Connection"] == "close"
        assert await reader.read() == b""
        writer.close()

    serve(test)


def test_a_client_that_sends_no_head_is_closed(serve: Callable[..., None]) -> None:
    async def test(server: HttpServer) -> None:
        reader, writer = await connect(server)
        writer.write(b"GET /slow")
        assert await closed(reader)
        writer.close()

    with changed("HEADER_TIMEOUT_S", 0.1):
        serve(test)


def test_a_client_that_does_not_read_is_closed(serve: Callable[..., None]) -> None:
    async def big(_: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, bytes(64 << 20), "application/octet-stream")

    async def test(server: HttpServer) -> None:
        server.routes["/big"] = big
        _, writer = await connect(server)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("/big").encode())
        while not server.connections:
            await asyncio.sleep(0.01)
        while server.connections:
            await asyncio.sleep(0.01)
        writer.transport.abort()

    with changed("SEND_TIMEOUT_S", 0.2):
        serve(test)


def test_connections_above_the_limit_are_closed_and_others_served(
    serve: Callable[..., None],
) -> None:
    async def test(server: HttpServer) -> None:
        first, second = await connect(server), await connect(server)
        while len(server.connections) < 2:
            await asyncio.sleep(0.01)
        reader, writer = await connect(server)
        assert await closed(reader)
        writer.close()
        first[1].write(get("/healthz").encode())
        assert (await answer(first[0]))[0] == 200
        for _, open_writer in (first, second):
            open_writer.close()

    with changed("CONNECTIONS_MAX", 2):
        serve(test)


def test_routes_can_be_added_and_a_failing_one_is_answered(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(request: HttpRequest) -> HttpResponse:
        return http.json_response(HTTPStatus.OK, query=request.query, x=request.headers["x"])

    async def fail(_: HttpRequest) -> HttpResponse:
        raise KeyError("a bug")

    async def test(server: HttpServer) -> None:
        server.routes["/echo me"] = echo
        server.routes["/fail"] = fail
        status, _, body = await ask(server, get("/echo%20me?a=1", "X: y"))
        assert (status, json.loads(body)) == (200, {"query": "a=1", "x": "y"})
        assert (await ask(server, get("/fail")))[0] == 500
        assert "a bug" in caplog.text
        assert (await ask(server, get("/healthz")))[0] == 200

    serve(test)


def test_a_scrape_lets_the_loop_go_on(serve: Callable[..., None]) -> None:
    registry = Registry()
    gauges = registry.gauges(Metric("penstock_level", "gauge", "Level.", ("n",)))
    for i in range(5_000):
        gauges.child(str(i))

    async def test(server: HttpServer) -> None:
        turns = 0
        scrape = asyncio.ensure_future(ask(server, get("/metrics")))
        while not scrape.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await scrape)[2].count(b"\n") == 5_002
        assert turns >= 20

    serve(test, registry=registry)


def test_stop_closes_what_is_open() -> None:
    async def main() -> None:
        server = HttpServer(Registry(), lambda: WELL)
        with pytest.raises(InvariantBroken):
            _ = server.address
        await server.stop()
        await server.start("127.0.0.1", 0)
        address = server.address
        reader, writer = await connect(server)
        while not server.connections:
            await asyncio.sleep(0.01)
        await server.stop()
        assert await closed(reader)
        writer.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(*address)

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
