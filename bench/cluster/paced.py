"""Publishing at a fixed rate on raw connections: how long each acknowledgement takes.

A message's latency runs from the moment it was due, so that a stall counts for all the messages
that it delayed. The loop sleeps between messages, since the nodes need the cores. One thread, or a
process of its own where the measuring one is busy.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from penstock.cli.bench.requests import (
    batch_of,
    check_produce_response,
    patch_correlation_id,
    produce_frame,
)
from penstock.cli.bench.sockets import FrameSocket
from penstock.kafka.client import Address

from .writers import ACKS_ALL, MESSAGE_BYTES, NS

T = TypeVar("T")

LAST_ANSWER_S_MAX = 30.0
RUN_S_MAX = 600.0
NICE = -10
"""The load is not what is measured: it comes before the others where the system allows it."""


class _Way:
    """A connection to the leader of one partition, and when what is under way on it was due."""

    def __init__(
        self, address: Address, topic: str, partition: int, acks: int, epoll: select.epoll
    ) -> None:
        self.socket = FrameSocket(address, epoll)
        self._frame = produce_frame(topic, [partition], batch_of(MESSAGE_BYTES, 1), acks)
        self.due: deque[int] = deque()
        self._sent = 0

    def send(self, due: int) -> None:
        self._sent += 1
        patch_correlation_id(self._frame, self._sent)
        self.due.append(due)
        self.socket.send(self._frame)


class PacedProduce:
    """One message per request, to each of `leaders` (an address and the partition that is led
    there) in turn, on a connection of its own.
    """

    def __init__(self, leaders: Sequence[tuple[Address, int]], topic: str, acks: int) -> None:
        self._epoll = select.epoll()
        ways = [_Way(where, topic, partition, acks, self._epoll) for where, partition in leaders]
        self._ways = {way.socket.fd: way for way in ways}
        self._turns = cycle(ways)

    def run(self, per_second: float, seconds: float, end: Event | None = None) -> list[int]:
        """The latencies in ns of what is sent in so many seconds, or until `end`."""
        latencies: list[int] = []
        interval = round(NS / per_second)
        due = time.perf_counter_ns()
        last = due + round(seconds * NS)
        way = next(self._turns)
        while due < last and not (end is not None and end.is_set()):
            now = time.perf_counter_ns()
            if now >= due and not way.socket.sending:
                way.send(due)
                way = next(self._turns)
                due += interval
            else:
                self._take(max(0, due - now) / NS, latencies)
        deadline = time.perf_counter() + LAST_ANSWER_S_MAX
        while left := sum(len(way.due) for way in self._ways.values()):
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{left} messages were never acknowledged")
            self._take(LAST_ANSWER_S_MAX, latencies)
        return latencies

    def close(self) -> None:
        for way in self._ways.values():
            way.socket.close()
        self._epoll.close()

    def _take(self, wait_s: float, latencies: list[int]) -> None:
        # select() waits by the microsecond, epoll only by the millisecond.
        if not select.select([self._epoll], [], [], wait_s)[0]:
            return
        for fd, events in self._epoll.poll(0):
            way = self._ways[fd]
            if events & select.EPOLLOUT:
                way.socket.send_rest()
            if events & ~select.EPOLLOUT:
                for answer in way.socket.receive():
                    check_produce_response(answer)
                    latencies.append(time.perf_counter_ns() - way.due.popleft())


class PacedProcess:
    """`PacedProduce` in a process of its own, with acknowledgement by all replicas in sync."""

    def __init__(self, address: Address, topic: str, per_second: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._end = context.Event()
        self._process = context.Process(
            target=_produce, args=(address, topic, per_second, theirs, self._end), daemon=True
        )

    def __enter__(self) -> PacedProcess:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def measured(self, work: Callable[[], T]) -> tuple[T, list[int]]:
        """What `work` gives, and the latencies in ns while it ran."""
        self._end.clear()
        self._pipe.send(None)
        self._pipe.recv()
        try:
            found = work()
        finally:
            self._end.set()
        return found, self._pipe.recv()


def _produce(address: Address, topic: str, per_second: float, pipe: Any, end: Event) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    paced = PacedProduce([(address, 0)], topic, ACKS_ALL)
    while True:
        pipe.recv()
        pipe.send(None)
        pipe.send(paced.run(per_second, RUN_S_MAX, end))
