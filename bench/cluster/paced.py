"""Publishing at a fixed rate on one raw connection: how long each acknowledgement takes.

A message's latency runs from the moment it was due, so that a stall counts for all the messages
that it delayed. The loop sleeps between messages, since the nodes need the cores. One thread.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque

from penstock.cli.bench.requests import (
    batch_of,
    check_produce_response,
    patch_correlation_id,
    produce_frame,
)
from penstock.cli.bench.sockets import FrameSocket

from .writers import MESSAGE_BYTES, NS, Address

LAST_ANSWER_S_MAX = 10.0


class PacedProduce:
    """One message per request to partition 0."""

    def __init__(self, address: Address, topic: str, acks: int) -> None:
        self._epoll = select.epoll()
        self._frame = produce_frame(topic, [0], batch_of(MESSAGE_BYTES, 1), acks)
        self._socket = FrameSocket(address, self._epoll)
        self._due: deque[int] = deque()
        self._sent = 0

    def run(
        self, per_second: float, seconds: float, end: threading.Event | None = None
    ) -> list[int]:
        """The latencies in ns of what is sent in so many seconds, or until `end`."""
        latencies: list[int] = []
        interval = round(NS / per_second)
        due = time.perf_counter_ns()
        last = due + round(seconds * NS)
        while due < last and not (end is not None and end.is_set()):
            now = time.perf_counter_ns()
            if now >= due and not self._socket.sending:
                self._send(due)
                due += interval
            else:
                self._take(max(0, due - now) / NS, latencies)
        deadline = time.perf_counter() + LAST_ANSWER_S_MAX
        while self._due:
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{len(self._due)} messages were never acknowledged")
            self._take(LAST_ANSWER_S_MAX, latencies)
        return latencies

    def close(self) -> None:
        self._socket.close()
        self._epoll.close()

    def _send(self, due: int) -> None:
        self._sent += 1
        patch_correlation_id(self._frame, self._sent)
        self._due.append(due)
        self._socket.send(self._frame)

    def _take(self, wait_s: float, latencies: list[int]) -> None:
        # select() waits by the microsecond, epoll only by the millisecond.
        if not select.select([self._epoll], [], [], wait_s)[0]:
            return
        for _, events in self._epoll.poll(0):
            if events & select.EPOLLOUT:
                self._socket.send_rest()
            if events & ~select.EPOLLOUT:
                for answer in self._socket.receive():
                    check_produce_response(answer)
                    latencies.append(time.perf_counter_ns() - self._due.popleft())
