"""A RabbitMQ quorum queue whose consumers hold one message each.

A consumer has a prefetch of 1 and acknowledges each message; RabbitMQ then sends the next. Nobody
answers an acknowledgement.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from .amqp_wire import (
    CANCEL,
    CANCEL_OK,
    DELIVER,
    MANAGE_S_MAX,
    AmqpConsumer,
    AmqpWire,
    Id,
    method,
    queue_of,
    short_text,
)
from .queue_wire import Asking, QueueConsumer, QueueWire, await_left
from .wire import PeerError, Received

TAG = "worker"
PREFETCH = 1
FILL_MESSAGES = 500
"""Sent before their confirms are awaited."""
GROUP = 0

_DELIVERY = struct.Struct(">QB")  # delivery tag, whether it was delivered before


class AmqpWorker(AmqpConsumer, QueueConsumer):
    """See `QueueConsumer`."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue, tag=TAG, ack_every=PREFETCH)
        self.is_over = False
        self.acknowledged = 0

    def received(self, data: memoryview) -> Received:
        found = super().received(data)
        self.acknowledged += found.messages
        return found

    def end(self) -> bytes:
        return method(CANCEL, short_text(TAG) + b"\0")

    def _look_at(self, payload: bytes) -> None:
        super()._look_at(payload)
        which = Id(*struct.unpack_from(">HH", payload))
        if which == CANCEL_OK:
            self.is_over = True
        elif which == DELIVER:
            tag_bytes = payload[4]
            _, redelivered = _DELIVERY.unpack_from(payload, 5 + tag_bytes)
            if redelivered:
                raise PeerError("RabbitMQ gave a message out again")


class AmqpQueue(QueueWire):
    """Quorum queues of the server at `host` and `port`."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._queues = AmqpWire(host, port)

    def make(self, queue: str) -> None:
        self._queues.make(queue)

    def remove(self, queue: str) -> None:
        self._queues.remove(queue)

    def fill(self, queue: str, messages: int, *, size: int, per_batch: int) -> int:
        lots = -(-messages // FILL_MESSAGES)
        with socket.create_connection(self._address, timeout=MANAGE_S_MAX) as sock:
            publisher = self._queues.publisher(
                sock, queue, size=size, messages=FILL_MESSAGES, acks="1"
            )
            for _ in range(lots):
                sock.sendall(publisher.request)
                done = 0
                while not done:
                    done = publisher.acknowledged(memoryview(sock.recv(1 << 16)))
        return lots * FILL_MESSAGES

    def consumers(
        self, queue: str, socks: Sequence[socket.socket], asking: Asking
    ) -> list[AmqpWorker]:
        if not asking.one:
            raise PeerError("RabbitMQ is compared where messages go one by one")
        for sock in socks:
            self._queues.open_window(sock, PREFETCH)
        return [AmqpWorker(queue_of(queue, GROUP)) for _ in socks]

    def check(self, queue: str, consumers: Sequence[QueueConsumer], filled: int) -> None:
        left = filled - sum(consumer.acknowledged for consumer in consumers)
        await_left(lambda: self._held(queue), left)

    def _held(self, queue: str) -> int:
        """Messages that are ready; nobody holds any, as no consumer is connected."""
        with self._queues.session(MANAGE_S_MAX) as session:
            return session.declare_queue(queue_of(queue, GROUP), passive=True)
