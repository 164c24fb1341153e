"""End-to-end latency: one connection publishes at a fixed rate, another one fetches by long
polling.

A message's latency runs from the moment it was due, not from the moment it was sent, so that a
stall counts for all the messages that it delayed. The loop spins instead of sleeping: give it a
core of its own.
"""

from __future__ import annotations

import select
import time

from penstock.cli.bench.requests import (
    FetchFrame,
    check_produce_response,
    count_records,
    fetched_records,
    patch_correlation_id,
    produce_frame,
)
from penstock.cli.bench.sockets import CLIENT, FrameSocket
from penstock.cli.errors import CliError
from penstock.kafka.client import Address, Client

FETCH_BYTES = 1024 * 1024
MAX_WAIT_MS = 500
ACKS_ALL = -1
LAST_ANSWER_S_MAX = 10.0


class LatencyRun:
    """Publishes `batch` of `count` messages at a time to partition 0 and times each until it is
    fetched.
    """

    def __init__(
        self, address: Address, topic: str, batch: bytes, count: int, client: Client = CLIENT
    ) -> None:
        self._epoll = select.epoll()
        self._frame = produce_frame(topic, [0], batch, ACKS_ALL)
        self._count = count
        self._producer = FrameSocket(address, self._epoll, client)
        self._consumer = FrameSocket(address, self._epoll, client)
        self._request = FetchFrame(topic, 0, FETCH_BYTES, MAX_WAIT_MS)
        self._offset = 0
        self._sent = 0
        self._due: list[int] = []
        self._latencies: list[int] = []
        self._fetch()

    def run(self, seconds: float, rate: float) -> tuple[list[int], float]:
        """The latency of each batch in ns, and the seconds in which they were sent."""
        interval = round(1e9 * self._count / rate)
        batches = max(1, round(seconds * 1e9 / interval))
        self._due = []
        self._latencies = []
        base = self._offset
        first = due = time.perf_counter_ns() + 1_000_000
        while len(self._due) < batches:
            if time.perf_counter_ns() >= due and not self._producer.sending:
                self._publish(due)
                due += interval
            self._turn(base)
        sent_ns = time.perf_counter_ns() - first
        deadline = time.perf_counter() + LAST_ANSWER_S_MAX
        while len(self._latencies) < batches:
            if time.perf_counter() > deadline:
                missing = batches - len(self._latencies)
                raise CliError(
                    f"{missing} of {batches} batches never came back: look at the broker's log"
                )
            self._turn(base)
        return self._latencies, sent_ns / 1e9

    def finish(self) -> None:
        self._producer.close()
        self._consumer.close()
        self._epoll.close()

    def _publish(self, due: int) -> None:
        self._sent += 1
        patch_correlation_id(self._frame, self._sent)
        self._due.append(due)
        self._producer.send(self._frame)

    def _fetch(self) -> None:
        self._consumer.send(self._request.at(self._offset, 0))

    def _turn(self, base: int) -> None:
        for fd, events in self._epoll.poll(0):
            if events & select.EPOLLOUT:
                self._producer.send_rest()
            if not events & ~select.EPOLLOUT:
                continue
            if fd == self._producer.fd:
                for answer in self._producer.receive():
                    check_produce_response(answer)
            else:
                self._receive(base)

    def _receive(self, base: int) -> None:
        for answer in self._consumer.receive():
            arrived = time.perf_counter_ns()
            _, next_offset = count_records(fetched_records(answer))
            if next_offset >= 0:
                self._offset = next_offset
                complete = (next_offset - base) // self._count
                for number in range(len(self._latencies), complete):
                    self._latencies.append(arrived - self._due[number])
            self._fetch()
