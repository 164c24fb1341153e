"""Thousands of clients in one process: an epoll loop over raw connections.

Started as `python -m bench.scale.load`; the parent writes one JSON order per line to its stdin and
reads one JSON answer per line. Orders:

* `connect` opens connections, each after an ApiVersions request, from several loopback addresses,
  since one pair of addresses has only some 28,000 ports.
* `fill` does the same to one node until a connection is closed or not answered for `wait_s`.
* `greet` has each connection ask for the API versions again; `hang_up` closes the last `count`.
* `begin` has each connection fetch one partition from its start until it has the message that the
  parent has put there, and wait for more.
* `consume` goes on with that, by long polls, for `seconds`, and notes how old each message is that
  arrives.
* `produce` has each connection publish one message every `interval_s`, evenly spread in time, for
  `seconds`. A message carries the time at which it was due: lateness of this process counts.

Both ends of a message are on this machine, so that `CLOCK_MONOTONIC` is one clock for both. A
request is outstanding at most once per connection. One thread owns everything.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cli.bench.report import percentiles
from penstock.cli.bench.requests import (
    FetchFrame,
    count_records,
    fetched_records,
    first_error_at,
    frame,
    produce_frame,
)
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.records import Record, build_batch

from .calls import ScaleError

CONNECT_S_MAX = 60.0
PER_SOURCE = 20_000
"""Connections from one loopback address."""
SOURCE = "127.0.9.{}"
IP_BIND_ADDRESS_NO_PORT = 24
RECEIVE_BYTES = 64 * 1024
FETCH_BYTES = 64 * 1024
FETCH_WAIT_MS = 20_000
FETCH_WAIT_STEP_MS = 7_919
"""By which the waits of neighbours differ, modulo the above."""
ANSWER_S_MAX = 120.0
LOOK_S = 0.1
EPOLL_STEP_S = 0.001
VALUE_BYTES = 100
MARK = b"scale-due"
"""Before the time at which a message was due, so that it is found in the batch."""
HELLO = bytes(frame(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0))
_DUE = struct.Struct(">q")
_ERROR = struct.Struct(">h")


class Client:
    """One connection, and what has arrived of a frame."""

    __slots__ = ("fetch", "offset", "partition", "rest", "sock", "topic")

    def __init__(self, sock: socket.socket, topic: str, partition: int) -> None:
        self.sock = sock
        self.topic = topic
        self.partition = partition
        self.rest = b""
        self.fetch: FetchFrame | None = None
        self.offset = 0

    def frames(self) -> list[bytes]:
        """The whole frames that have arrived, without their lengths."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise ScaleError("the node has closed a connection: look at its log")
        data = self.rest + data
        found, position = [], 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            found.append(data[position + 4 : end])
            position = end
        self.rest = data[position:]
        return found

    def greet(self) -> None:
        """Asks for the API versions, and has the answer; TimeoutError when there is none."""
        self.sock.sendall(HELLO)
        while not self.frames():
            pass

    def ask(self) -> None:
        """Long-polls for what comes next."""
        assert self.fetch is not None
        self.sock.sendall(self.fetch.at(self.offset, 0))


class Load:
    def __init__(self) -> None:
        self._clients: list[Client] = []
        self._epoll = select.epoll()
        self._by_fd: dict[int, Client] = {}
        self._ages_ns: list[int] = []

    def connect(self, order: dict[str, Any]) -> dict[str, Any]:
        """Each of `places` is host, port, topic and partition."""
        began = time.perf_counter()
        first = order["first"]
        for number, (host, port, topic, partition) in enumerate(order["places"], first):
            client = Client(_socket(number, CONNECT_S_MAX), topic, partition)
            client.sock.connect((host, port))
            client.greet()
            self._add(client)
        return {"connected": len(self._clients), "seconds": time.perf_counter() - began}

    def _add(self, client: Client) -> None:
        self._clients.append(client)
        self._by_fd[client.sock.fileno()] = client
        self._epoll.register(client.sock.fileno(), select.EPOLLIN)

    def fill(self, order: dict[str, Any]) -> dict[str, Any]:
        """Up to `count` connections to one node, in `seconds` at most; whether it is full."""
        began = time.perf_counter()
        for number in range(order["first"], order["first"] + order["count"]):
            if time.perf_counter() - began > order["seconds"]:
                raise ScaleError(f"{len(self._clients)} connections in {order['seconds']} s")
            client = Client(_socket(number, order["wait_s"]), "", 0)
            try:
                client.sock.connect((order["host"], order["port"]))
                client.greet()
            except (ScaleError, OSError):
                client.sock.close()
                return {"connected": len(self._clients), "full": True}
            self._add(client)
        return {"connected": len(self._clients), "full": False}

    def greet(self, _order: dict[str, Any]) -> dict[str, Any]:
        """How many connections are answered."""
        for client in self._clients:
            client.greet()
        return {"answered": len(self._clients)}

    def hang_up(self, order: dict[str, Any]) -> dict[str, Any]:
        for client in self._clients[-order["count"] :]:
            self._epoll.unregister(client.sock.fileno())
            del self._by_fd[client.sock.fileno()]
            client.sock.close()
        del self._clients[-order["count"] :]
        return {"connected": len(self._clients)}

    def begin(self, _order: dict[str, Any]) -> dict[str, Any]:
        """Everybody has read what is there, and waits."""
        for client in self._clients:
            # All begin at once; those of clients in the wild do not end at once.
            wait_ms = FETCH_WAIT_MS + client.partition * FETCH_WAIT_STEP_MS % FETCH_WAIT_MS
            client.fetch = FetchFrame(client.topic, client.partition, FETCH_BYTES, wait_ms)
            client.ask()
        deadline = time.monotonic() + ANSWER_S_MAX
        while behind := sum(not client.offset for client in self._clients):
            if time.monotonic() > deadline:
                raise ScaleError(f"{behind} consumers have not read their first message")
            for fd, _ in self._epoll.poll(1.0):
                self._fetched(self._by_fd[fd])
        return {}

    def consume(self, order: dict[str, Any]) -> dict[str, Any]:
        """Reads for `seconds`; how old messages were when they arrived."""
        self._ages_ns.clear()
        end = time.monotonic() + order["seconds"]
        while (left := end - time.monotonic()) > 0:
            for fd, _ in self._epoll.poll(left):
                self._fetched(self._by_fd[fd])
        return {"messages": len(self._ages_ns), **_percentiles(self._ages_ns)}

    def _fetched(self, client: Client) -> None:
        for answer in client.frames():
            now = time.monotonic_ns()
            batches = fetched_records(memoryview(answer))
            count, following = count_records(batches)
            if count:
                client.offset = following
                for part in bytes(batches).split(MARK)[1:]:
                    self._ages_ns.append(now - _DUE.unpack_from(part)[0])
            client.ask()

    def produce(self, order: dict[str, Any]) -> dict[str, Any]:
        """Publishes at an even pace; the seconds from due to acknowledged, too."""
        clients, interval = self._clients, order["interval_s"]
        due_ns: dict[int, int] = {}
        acknowledged: list[int] = []
        sent, skipped = 0, 0
        pause_ns = int(1e9 * interval / len(clients))
        began = time.monotonic_ns()
        total = int(order["seconds"] * 1e9 // pause_ns)
        deadline = began + int(1e9 * (order["seconds"] + ANSWER_S_MAX))
        while sent + skipped < total or due_ns:
            now = time.monotonic_ns()
            if now > deadline:
                raise ScaleError(f"{len(due_ns)} messages are not acknowledged")
            while sent + skipped < total and began + (sent + skipped) * pause_ns <= now:
                number = sent + skipped
                client = clients[number % len(clients)]
                if client.sock.fileno() in due_ns:
                    skipped += 1
                    continue
                due = began + number * pause_ns
                client.sock.sendall(_message(client, due))
                due_ns[client.sock.fileno()] = due
                sent += 1
            following = began + (sent + skipped) * pause_ns if sent + skipped < total else None
            for fd, _ in self._wait_until(following):
                client = self._by_fd[fd]
                for answer in client.frames():
                    _check(answer, client.topic)
                    acknowledged.append(time.monotonic_ns() - due_ns.pop(fd))
        return {"messages": sent, "skipped": skipped, **_percentiles(acknowledged)}

    def _wait_until(self, due_ns: int | None) -> list[tuple[int, int]]:
        """What has arrived, at `due_ns` at the latest; epoll itself counts in milliseconds."""
        wait_s = LOOK_S if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        if wait_s >= EPOLL_STEP_S:
            return self._epoll.poll(wait_s - EPOLL_STEP_S)
        time.sleep(wait_s)
        return self._epoll.poll(0)


def _socket(number: int, seconds: float) -> socket.socket:
    """A socket for the connection with this number, bound to one of the loopback addresses."""
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(seconds)
    sock.bind((SOURCE.format(1 + number // PER_SOURCE), 0))
    return sock


def _message(client: Client, due: int) -> bytearray:
    value = (MARK + _DUE.pack(due)).ljust(VALUE_BYTES, b".")
    batch = build_batch([Record(0, time.time_ns() // 1_000_000, None, value, ())])
    return produce_frame(client.topic, [client.partition], batch, 1)


def _check(answer: bytes, topic: str) -> None:
    (code,) = _ERROR.unpack_from(answer, first_error_at(topic, 1))
    if code:
        raise ScaleError(f"a message was refused: {ErrorCode(code).name}")


def _percentiles(nanoseconds: list[int]) -> dict[str, float]:
    return percentiles(nanoseconds) if nanoseconds else {}


def main() -> None:
    load = Load()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(load, order["do"])(order)
        except (ScaleError, OSError) as e:
            answer = {"failed": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
