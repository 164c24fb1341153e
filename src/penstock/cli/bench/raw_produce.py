"""Raw produce load: the same request, again and again, on some connections.

Every answer's length and the first partition's error code are compared with those of the first
answer, which is decoded in full; an answer that differs is decoded too. Nothing else is looked
at, so that the load costs less than the broker.
"""

from __future__ import annotations

import select
import time

from penstock.cli.bench.requests import (
    check_produce_response,
    first_error_at,
    patch_correlation_id,
    produce_frame,
)
from penstock.cli.bench.sockets import CLIENT, FrameSocket
from penstock.kafka.client import Address, Client

POLL_S = 0.1
ANSWER_S_MAX = 30.0


class _Producer:
    """One connection with its own copy of the request."""

    __slots__ = ("correlation_id", "frame", "in_flight", "socket", "to_send")

    def __init__(self, socket: FrameSocket, frame: bytearray) -> None:
        self.socket = socket
        self.frame = frame
        self.in_flight = 0
        self.to_send = 0
        self.correlation_id = 0


class ProduceLoad:
    """Keeps `depth` requests in flight on each connection; without acks, as many as the kernel
    takes.
    """

    def __init__(
        self,
        address: Address,
        topic: str,
        partitions: list[int],
        batch: bytes,
        *,
        connections: int,
        depth: int,
        acks: int,
        client: Client = CLIENT,
    ) -> None:
        self.requests = 0
        self._epoll = select.epoll()
        self._answer_bytes = -1
        self._error_at = first_error_at(topic, len(partitions))
        self._acked = acks != 0
        self._running = True
        frame = produce_frame(topic, partitions, batch, acks)
        producers = [
            _Producer(FrameSocket(address, self._epoll, client), bytearray(frame))
            for _ in range(connections)
        ]
        self._producers = {producer.socket.fd: producer for producer in producers}
        for producer in producers:
            producer.to_send = depth
            self._send(producer)

    def run(self, seconds: float) -> float:
        """Load for so long; the seconds it took in fact. `requests` counts those answered (or
        sent, without acks).
        """
        self.requests = 0
        started = time.perf_counter()
        deadline = started + seconds
        while time.perf_counter() < deadline:
            self.turn()
        return time.perf_counter() - started

    def finish(self) -> None:
        """Wait for what is in flight, then close."""
        self._running = False
        deadline = time.perf_counter() + ANSWER_S_MAX
        while any(p.in_flight for p in self._producers.values()) and time.perf_counter() < deadline:
            self.turn()
        for producer in self._producers.values():
            producer.socket.close()
        self._epoll.close()

    def fileno(self) -> int:
        """Readable when an answer has come, so that one thread can drive several loads."""
        return self._epoll.fileno()

    def turn(self) -> None:
        """Take the answers that have come and send as many requests."""
        for fd, events in self._epoll.poll(POLL_S if self._acked else 0):
            producer = self._producers[fd]
            if events & select.EPOLLOUT:
                self._send(producer)
            if events & ~select.EPOLLOUT:
                answers = self._count_answers(producer)
                producer.in_flight -= answers
                producer.to_send += answers
                self.requests += answers
                if answers and self._running:
                    self._send(producer)
        if not self._acked:  # no answer will wake these up
            for producer in self._producers.values():
                self._send(producer)

    def _send(self, producer: _Producer) -> None:
        socket, frame = producer.socket, producer.frame
        if socket.sending and not socket.send_rest():
            return
        while producer.to_send and self._running:
            producer.correlation_id += 1
            patch_correlation_id(frame, producer.correlation_id)
            if self._acked:
                producer.to_send -= 1
                producer.in_flight += 1
            else:
                self.requests += 1
            if not socket.send(frame):
                return
            if not self._acked:
                return  # one per turn and connection: the others and the clock want their turn too

    def _count_answers(self, producer: _Producer) -> int:
        count = 0
        for answer in producer.socket.receive():
            refused = answer[self._error_at] or answer[self._error_at + 1]
            if refused or len(answer) != self._answer_bytes:
                check_produce_response(answer)
                self._answer_bytes = len(answer)
            count += 1
        return count
