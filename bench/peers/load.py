"""The load at full speed, one for all peers: an epoll loop in one process.

`publish` keeps requests outstanding on some connections, `consume` reads a topic that was filled.
Both know sockets and time only; what the bytes mean is the wire's. (At a fixed rate: `pacing.py`.)

Per event there is one receive into a buffer that all connections share, one look at the clock and
one send: the load runs on the cores of the server that it measures. One thread owns everything
here.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from .server import Server
from .sockets import DRAIN_S_MAX, NS, POLL_S, RECEIVE_BYTES, connect, lost, quiet, receive, take
from .wire import Consumer, PeerError, Publisher


class Published(NamedTuple):
    """What was acknowledged; `latencies_ns` are those of requests, from send to acknowledgement."""

    messages: int
    seconds: float
    latencies_ns: list[int]
    cpu_s: float


class Consumed(NamedTuple):
    """What all groups have received together."""

    messages: int
    seconds: float
    cpu_s: float

    def and_then(self, other: Consumed) -> Consumed:
        """Both, one after the other."""
        return Consumed(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def publish(
    server: Server,
    topic: str,
    *,
    size: int,
    messages: int,
    connections: int,
    depth: int,
    acks: str,
    seconds: float,
    requests_max: int | None = None,
) -> Published:
    """Publishes at full speed for so long, or so many requests, and waits for what is outstanding
    then: all that is counted was acknowledged, and its time ends with the last acknowledgement.
    """
    wire = server.wire()
    load = _Publishing(server)
    with quiet():
        try:
            for _ in range(connections):
                sock = connect(server)
                load.add(sock, wire.publisher(sock, topic, size=size, messages=messages, acks=acks))
            requests, took, cpu_s = load.run(seconds, depth, requests_max)
        except OSError as e:
            raise lost(server.name, e) from None
        finally:
            load.close()
    return Published(requests * messages, took, load.latencies_ns, cpu_s)


def consume(server: Server, topic: str, *, groups: int, expected: int, seconds: float) -> Consumed:
    """Reads `topic` by so many groups at once, until each has `expected` messages or the time is
    over.
    """
    wire = server.wire()
    consumers = [
        partial(wire.consumer, topic=topic, group=group)  # each gets its connection
        for group in range(groups)
    ]
    return consume_by(server, consumers, expected=expected, seconds=seconds)


def consume_by(
    server: Server,
    consumers: Sequence[Callable[[socket.socket], Consumer]],
    *,
    expected: int,
    seconds: float,
) -> Consumed:
    """Reads by these consumers at once, each on a connection of its own, likewise."""
    load = _Consuming(server)
    with quiet():
        try:
            for consumer in consumers:
                sock = connect(server)
                load.add(sock, consumer(sock))
            return load.run(expected, seconds)
        finally:
            load.close()


class _Writer:
    """One connection that publishes: `owed` requests are to be begun, `left` is what the kernel
    did not take of the last one, `sent_ns` are the times of those without an acknowledgement.
    """

    __slots__ = ("acknowledged", "left", "owed", "receive_into", "request", "sent_ns", "sock")

    def __init__(self, sock: socket.socket, publisher: Publisher) -> None:
        self.sock = sock
        self.receive_into = sock.recv_into
        self.acknowledged = publisher.acknowledged
        self.request = publisher.request
        self.owed = 0
        self.left: memoryview | None = None
        self.sent_ns: deque[int] = deque()


class _Publishing:
    """The loop of `publish`."""

    def __init__(self, server: Server) -> None:
        self.latencies_ns: list[int] = []
        self._server = server
        self._epoll = select.epoll()
        self._writers: dict[int, _Writer] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._outstanding = 0
        self._to_begin = 0
        self._last_ns = 0

    def add(self, sock: socket.socket, publisher: Publisher) -> None:
        sock.setblocking(False)
        self._writers[sock.fileno()] = _Writer(sock, publisher)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def run(self, seconds: float, depth: int, requests_max: int | None) -> tuple[int, float, float]:
        """Requests acknowledged, the seconds until the last was, processor time of the server."""
        writers, poll, clock = self._writers, self._epoll.poll, time.perf_counter_ns
        self._to_begin = requests_max if requests_max is not None else 1 << 62
        cpu_s = self._server.cpu_seconds()
        began = clock()
        deadline = began + round(seconds * NS)
        give_up = deadline + round(DRAIN_S_MAX * NS)
        for writer in writers.values():
            writer.owed = depth
            self._push(writer, began)
        while self._outstanding:
            for fd, events in poll(POLL_S):
                writer = writers[fd]
                if events & select.EPOLLOUT:
                    self._go_on(fd, writer)
                if events & ~select.EPOLLOUT:
                    self._answered(writer)
            now = clock()
            if now >= deadline:
                self._to_begin = 0
                if now >= give_up:
                    break
        cpu_s = self._server.cpu_seconds() - cpu_s
        if self._outstanding:
            raise PeerError(
                f"{self._server.name} did not acknowledge {self._outstanding} of "
                f"{self._outstanding + len(self.latencies_ns)} requests in {DRAIN_S_MAX:g} s"
            )
        return len(self.latencies_ns), (self._last_ns - began) / NS, cpu_s

    def close(self) -> None:
        self._epoll.close()
        for writer in self._writers.values():
            writer.sock.close()

    def _answered(self, writer: _Writer) -> None:
        try:
            read = writer.receive_into(self._buffer)
        except BlockingIOError:  # a part of what was encrypted together
            return
        if not read:
            raise ConnectionResetError("closed by the server")
        answers = writer.acknowledged(self._buffer[:read])
        if not answers:
            return
        now = self._last_ns = time.perf_counter_ns()
        self._outstanding -= answers
        writer.owed += answers
        while answers:
            self.latencies_ns.append(now - writer.sent_ns.popleft())
            answers -= 1
        if writer.left is None:
            self._push(writer, now)

    def _push(self, writer: _Writer, now: int) -> None:
        """Begins what is owed, until the kernel takes no more."""
        while writer.owed and self._to_begin:
            writer.owed -= 1
            self._to_begin -= 1
            self._outstanding += 1
            writer.sent_ns.append(now)
            sent = take(writer.sock, writer.request)
            if sent < len(writer.request):
                writer.left = memoryview(writer.request)[sent:]
                self._epoll.modify(writer.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
                return

    def _go_on(self, fd: int, writer: _Writer) -> None:
        """Sends the rest of a request whose beginning is on its way."""
        if writer.left is not None:
            sent = take(writer.sock, writer.left)
            if sent < len(writer.left):
                writer.left = writer.left[sent:]
                return
        writer.left = None
        self._epoll.modify(fd, select.EPOLLIN)
        self._push(writer, time.perf_counter_ns())


class Reader:
    """One consumer: its connection, what it has received, and what it still has to say."""

    __slots__ = ("consumer", "left", "messages", "sock")

    def __init__(self, sock: socket.socket, consumer: Consumer) -> None:
        self.sock = sock
        self.consumer = consumer
        self.messages = 0
        self.left = b""

    def say(self, reply: bytes | bytearray) -> bool:
        """Whether the kernel took all of it; the rest is kept as a copy, as the wire may patch
        the same bytes for its next reply.
        """
        if self.left:
            self.left += bytes(reply)
            reply = self.left
        self.left = bytes(memoryview(reply)[take(self.sock, reply) :])
        return not self.left


class _Consuming:
    """The loop of `consume`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._epoll = select.epoll()
        self._readers: dict[int, Reader] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def add(self, sock: socket.socket, consumer: Consumer) -> None:
        sock.setblocking(False)
        self._readers[sock.fileno()] = Reader(sock, consumer)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def run(self, expected: int, seconds: float) -> Consumed:
        readers, poll, clock = self._readers, self._epoll.poll, time.perf_counter_ns
        cpu_s = self._server.cpu_seconds()
        began = last = clock()
        deadline = began + round(seconds * NS)
        for fd, reader in readers.items():
            self._say(fd, reader, reader.consumer.first)
        reading = len(readers)
        while reading and clock() < deadline:
            for fd, events in poll(POLL_S):
                reader = readers[fd]
                if events & select.EPOLLOUT:
                    self._say(fd, reader, b"")
                if events & ~select.EPOLLOUT and self._received(fd, reader, expected):
                    reading -= 1
                    self._epoll.unregister(fd)
            last = clock()
        messages = sum(reader.messages for reader in readers.values())
        if not messages:
            raise PeerError(f"{self._server.name} gave out nothing in {seconds:g} s")
        return Consumed(messages, (last - began) / NS, self._server.cpu_seconds() - cpu_s)

    def close(self) -> None:
        self._epoll.close()
        for reader in self._readers.values():
            reader.sock.close()

    def _received(self, fd: int, reader: Reader, expected: int) -> bool:
        """Takes what has arrived; whether the group now has everything."""
        read = receive(reader.sock, self._buffer, self._server.name)
        messages, reply = reader.consumer.received(self._buffer[:read])
        reader.messages += messages
        if reader.messages >= expected:
            return True
        if reply:
            self._say(fd, reader, reply)
        return False

    def _say(self, fd: int, reader: Reader, reply: bytes | bytearray) -> None:
        waited = bool(reader.left)
        if reader.say(reply) == waited:
            events = select.EPOLLIN if waited else select.EPOLLIN | select.EPOLLOUT
            self._epoll.modify(fd, events)
