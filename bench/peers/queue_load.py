"""The load of a queue: consumers that share it, at full speed or with work to do for each message.

`QueueLoad` reads until all is delivered or the time is over, and the clock stops then. `drain` has
the consumers acknowledge what they hold and end; that is not timed. `Working` is the same with
consumers that are busy for a while with what they were given, and only then acknowledge it and ask
for more.

One epoll loop in one thread, as in `load.py`.
"""

from __future__ import annotations

import select
import socket
import time
from heapq import heappop, heappush

from .load import Consumed, Reader
from .queue_wire import QueueConsumer
from .server import Server
from .sockets import DRAIN_S_MAX, NS, POLL_S, RECEIVE_BYTES, receive
from .wire import PeerError


class QueueReader(Reader):
    """One consumer and its connection."""

    __slots__ = ("worker",)

    def __init__(self, sock: socket.socket, worker: QueueConsumer) -> None:
        super().__init__(sock, worker)
        self.worker = worker


class QueueLoad:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._epoll = select.epoll()
        self._readers: dict[int, QueueReader] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def add(self, sock: socket.socket, consumer: QueueConsumer) -> None:
        sock.setblocking(False)
        self._readers[sock.fileno()] = QueueReader(sock, consumer)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    @property
    def messages(self) -> int:
        """How many were delivered."""
        return sum(reader.messages for reader in self._readers.values())

    def begin(self) -> None:
        for fd, reader in self._readers.items():
            self._say(fd, reader, reader.worker.first)

    def run(self, expected: int, seconds: float) -> Consumed:
        """Until so many messages more are delivered, or the time is over."""
        cpu_s = self._server.cpu_seconds()
        before, began = self.messages, time.perf_counter_ns()
        last, deadline, messages = began, began + round(seconds * NS), 0
        while messages < expected and time.perf_counter_ns() < deadline:
            arrived = self._turn()
            if arrived:
                messages += arrived
                last = time.perf_counter_ns()
        if messages < expected:
            last = time.perf_counter_ns()
        assert messages == self.messages - before
        if not messages:
            raise PeerError(f"{self._server.name} gave out nothing in {seconds:g} s")
        return Consumed(messages, (last - began) / NS, self._server.cpu_seconds() - cpu_s)

    def quieten(self) -> None:
        """Until nobody holds what is not acknowledged; consumers go on waiting for more."""
        deadline = time.perf_counter() + DRAIN_S_MAX
        while any(
            reader.worker.acknowledged < reader.messages for reader in self._readers.values()
        ):
            if time.perf_counter() > deadline:
                raise PeerError(f"{self._server.name} does not answer acknowledgements")
            self._turn()

    def drain(self) -> None:
        """All consumers end, and acknowledge what they hold."""
        for fd, reader in self._readers.items():
            self._say(fd, reader, reader.worker.end())
        deadline = time.perf_counter() + DRAIN_S_MAX
        while not all(reader.worker.is_over for reader in self._readers.values()):
            if time.perf_counter() > deadline:
                raise PeerError(f"{self._server.name} has consumers that do not end")
            self._turn()

    def close(self) -> None:
        self._epoll.close()
        for reader in self._readers.values():
            reader.sock.close()

    def _turn(self) -> int:
        """What happens next; how many messages were delivered."""
        arrived = 0
        for fd, events in self._epoll.poll(self._wait_s()):
            reader = self._readers[fd]
            if events & select.EPOLLOUT:
                self._say(fd, reader, b"")
            if events & ~select.EPOLLOUT:
                read = receive(reader.sock, self._buffer, self._server.name)
                messages, reply = reader.worker.received(self._buffer[:read])
                reader.messages += messages
                arrived += messages
                if reply:
                    self._reply(fd, reader, messages, reply)
        return arrived

    def _wait_s(self) -> float:
        return POLL_S

    def _reply(self, fd: int, reader: QueueReader, messages: int, reply: bytes | bytearray) -> None:
        self._say(fd, reader, reply)

    def _say(self, fd: int, reader: QueueReader, reply: bytes | bytearray) -> None:
        waited = bool(reader.left)
        if (reply or waited) and reader.say(reply) == waited:
            events = select.EPOLLIN if waited else select.EPOLLIN | select.EPOLLOUT
            self._epoll.modify(fd, events)


class Working(QueueLoad):
    """Each message keeps its consumer busy for `work_s`."""

    def __init__(self, server: Server, work_s: float) -> None:
        super().__init__(server)
        self._work_s = work_s
        self._due: list[tuple[float, int, bytes | bytearray]] = []
        self._drains = False
        self._spells: list[tuple[float, float]] = []
        """When consumers began to work, and when they were ready."""

    def busy_s(self, began: float, ended: float) -> float:
        """How long all consumers together were at work in this time."""
        return sum(max(0.0, min(ended, end) - max(began, begin)) for begin, end in self._spells)

    def work(self, seconds: float) -> tuple[float, float]:
        """Works for so long; from when to when."""
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            self._turn()
        return began, time.perf_counter()

    def drain(self) -> None:
        """Nobody finishes the work of what is left."""
        self._drains = True
        while self._due:
            _, fd, reply = heappop(self._due)
            self._say(fd, self._readers[fd], reply)
        super().drain()

    def _wait_s(self) -> float:
        now = time.perf_counter()
        while self._due and self._due[0][0] <= now:
            _, fd, reply = heappop(self._due)
            self._say(fd, self._readers[fd], reply)
        return min(POLL_S, self._due[0][0] - now) if self._due else POLL_S

    def _reply(self, fd: int, reader: QueueReader, messages: int, reply: bytes | bytearray) -> None:
        if self._drains or not messages:
            self._say(fd, reader, reply)
            return
        now = time.perf_counter()
        ready = now + messages * self._work_s
        self._spells.append((now, ready))
        heappush(self._due, (ready, fd, bytes(reply)))
