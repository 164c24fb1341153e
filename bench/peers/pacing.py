"""The load at a fixed rate: one connection publishes, another one reads.

The loop sleeps between events instead of spinning, so that the server has both cores, by a timer
as exact as the kernel's. One thread owns everything here.
"""

from __future__ import annotations

import ctypes
import select
import socket
import time
from typing import NamedTuple

from .server import Server
from .sockets import DRAIN_S_MAX, NS, POLL_S, RECEIVE_BYTES, connect, quiet, receive, take
from .wire import Consumer, PeerError, Publisher, Wire

PACED_DRAIN_S_MAX = 5.0
LEAD_NS = 1_000_000
"""From the start of a run to its first request."""
PR_SET_TIMERSLACK = 29
TIMER_SLACK_NS = 1


class Paced(NamedTuple):
    """Latencies are those of requests, from the moment they were due until their last message
    was back; `reached_per_s` is the rate of messages that came back.
    """

    latencies_ns: list[int]
    reached_per_s: float


def paced(
    server: Server,
    topic: str,
    *,
    size: int,
    rate: float,
    messages_per_request: int,
    seconds: float,
    wire: Wire | None = None,
) -> Paced:
    """Publishes on one connection at `rate` messages per second and reads on another; the n-th
    message that arrives is the n-th that was due. Both speak by `wire`, or the server's own.
    """
    interval_ns = round(NS * messages_per_request / rate)
    requests = max(1, round(seconds * NS / interval_ns))
    wire = wire or server.wire()
    with quiet(), connect(server) as reads, connect(server) as writes:
        consumer = wire.consumer(reads, topic, group=0)
        publisher = wire.publisher(
            writes, topic, size=size, messages=messages_per_request, acks="all"
        )
        load = _Pacing(server, reads, consumer, writes, publisher)
        return load.run(messages_per_request, interval_ns, requests)


class _Pacing:
    """The loop of `paced`."""

    def __init__(
        self,
        server: Server,
        reads: socket.socket,
        consumer: Consumer,
        writes: socket.socket,
        publisher: Publisher,
    ) -> None:
        self._server = server
        self._reads = reads
        self._consumer = consumer
        self._writes = writes
        self._publisher = publisher
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._left: memoryview | None = None
        self._messages_per_request = 1
        self._back = 0
        self._latencies_ns: list[int] = []
        self._first_due = 0
        self._interval_ns = 0

    def run(self, messages_per_request: int, interval_ns: int, requests: int) -> Paced:
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)
        self._messages_per_request = messages_per_request
        self._begin()
        clock = time.perf_counter_ns
        self._interval_ns = interval_ns
        self._first_due = due = clock() + LEAD_NS
        end = due + requests * interval_ns
        sent = 0
        while sent < requests and (now := clock()) < end:
            if now >= due and self._left is None:
                self._send()
                sent += 1
                due += interval_ns
            self._turn(max(0, due - clock()) / NS)
        give_up = end + round(PACED_DRAIN_S_MAX * NS)
        while len(self._latencies_ns) < sent and clock() < give_up:
            self._turn(POLL_S)
        took = max(clock(), end) - self._first_due
        return Paced(self._latencies_ns, self._back * NS / took)

    def _begin(self) -> None:
        """Lets one request go through, so that both connections are known to stand."""
        self._reads.sendall(self._consumer.first)
        self._reads.setblocking(False)
        self._writes.setblocking(False)
        self._send()
        give_up = time.perf_counter() + DRAIN_S_MAX
        while self._back < self._messages_per_request:
            if time.perf_counter() > give_up:
                raise PeerError(
                    f"{self._server.name} gave back {self._back} of {self._messages_per_request}"
                    f" messages in {DRAIN_S_MAX:g} s"
                )
            self._turn(POLL_S)
        self._back = 0
        self._latencies_ns = []

    def _send(self) -> None:
        request = self._publisher.request
        sent = take(self._writes, request)
        self._left = memoryview(request)[sent:] if sent < len(request) else None

    def _turn(self, timeout_s: float) -> None:
        """What happens within the time. It is select, as epoll counts whole milliseconds."""
        reads, writes = self._reads, self._writes
        blocked = [] if self._left is None else [writes]
        wait_s = POLL_S if blocked else timeout_s
        readable, writable, _ = select.select([reads, writes], blocked, [], wait_s)
        if reads in readable:
            self._arrived()
        if writable and self._left is not None:
            sent = take(writes, self._left)
            self._left = self._left[sent:] if sent < len(self._left) else None
        if writes in readable:
            read = receive(writes, self._buffer, self._server.name)
            self._publisher.acknowledged(self._buffer[:read])

    def _arrived(self) -> None:
        read = receive(self._reads, self._buffer, self._server.name)
        now = time.perf_counter_ns()
        messages, reply = self._consumer.received(self._buffer[:read])
        if reply and (taken := take(self._reads, reply)) < len(reply):
            self._reads.setblocking(True)
            self._reads.sendall(memoryview(reply)[taken:])
            self._reads.setblocking(False)
        if messages:
            self._back += messages
            whole = self._back // self._messages_per_request
            for number in range(len(self._latencies_ns), whole):
                self._latencies_ns.append(now - self._first_due - number * self._interval_ns)
