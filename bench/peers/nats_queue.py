"""A work queue of NATS JetStream: a stream that keeps a message until it is acknowledged, and one
pull consumer that all workers share.

A worker has one request for one message under way. It acknowledges what came and asks for the next
in one write, as NATS's clients do; nobody answers an acknowledgement.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from .nats_wire import MANAGE_S_MAX, NatsWire, Session, inbox
from .queue_wire import Asking, QueueConsumer, QueueWire, await_left
from .wire import PeerError, Received

WORKERS = "workers"
SID = 1
FILL_MESSAGES = 500
"""Sent before their acknowledgements are awaited."""
LINE_END = b"\r\n"
ACK = b"+ACK"


class NatsWorker(QueueConsumer):
    """See `QueueConsumer`."""

    def __init__(self, queue: str) -> None:
        own = inbox()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{WORKERS}".encode()
        body = b'{"batch":1}'
        self._pull = b"PUB %b %b %d\r\n%b\r\n" % (subject, own, len(body), body)
        self.first = b"SUB %b %d\r\n" % (own, SID) + self._pull
        self.is_over = False
        self.acknowledged = 0
        self.sequences: list[int] = []
        """Of the messages that came, in the stream."""
        self._queue = queue
        self._ends = False
        self._arrived = b""

    def end(self) -> bytes:
        """What NATS has sent before it answers the PING is still acknowledged."""
        self._ends = True
        return b"UNSUB %d\r\nPING\r\n" % SID

    def received(self, data: memoryview) -> Received:
        arrived, at, reply = self._arrived + data, 0, b""
        before = self.acknowledged
        while (end := arrived.find(LINE_END, at)) >= 0:
            line, after = arrived[at:end], end + len(LINE_END)
            if line.startswith(b"MSG "):
                _, _, _, to, size = line.split()
                after += int(size) + len(LINE_END)
                if after > len(arrived):
                    break
                reply += self._answer(to)
            elif line == b"PONG":
                self.is_over = True
            elif not line.startswith((b"PING", b"INFO")):
                raise PeerError(f"NATS refused to read {self._queue}: {line.decode()}")
            at = after
        self._arrived = arrived[at:]
        return Received(self.acknowledged - before, reply or None)

    def _answer(self, to: bytes) -> bytes:
        """`to` is `$JS.ACK.stream.consumer.times delivered.sequence.…`."""
        words = to.split(b".")
        if words[4] != b"1":
            raise PeerError(
                f"NATS gave a message out {words[4].decode()} times: {words[5].decode()}"
            )
        self.sequences.append(int(words[5]))
        self.acknowledged += 1
        acknowledge = b"PUB %b %d\r\n%b\r\n" % (to, len(ACK), ACK)
        return acknowledge if self._ends else acknowledge + self._pull


class NatsQueue(QueueWire):
    """Streams with retention of work queues, in files, one copy."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams = NatsWire(host, port)

    def make(self, queue: str) -> None:
        self._streams.make(queue, retention="workqueue")
        config = {"durable_name": WORKERS, "ack_policy": "explicit", "deliver_policy": "all"}
        with self._streams.session() as session:
            session.get(
                f"$JS.API.CONSUMER.DURABLE.CREATE.{queue}.{WORKERS}",
                {"stream_name": queue, "config": config},
            )

    def remove(self, queue: str) -> None:
        self._streams.remove(queue)

    def fill(self, queue: str, messages: int, *, size: int, per_batch: int) -> int:
        lots = -(-messages // FILL_MESSAGES)
        with socket.create_connection(self._address, timeout=MANAGE_S_MAX) as sock:
            publisher = self._streams.publisher(
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
    ) -> list[NatsWorker]:
        if not asking.one:
            raise PeerError("NATS is compared where messages go one by one")
        for sock in socks:
            Session(sock)
        return [NatsWorker(queue) for _ in socks]

    def check(self, queue: str, consumers: Sequence[QueueConsumer], filled: int) -> None:
        workers = [consumer for consumer in consumers if isinstance(consumer, NatsWorker)]
        came = sorted(number for worker in workers for number in worker.sequences)
        if len(set(came)) != len(came):
            raise PeerError("NATS gave messages to two workers")
        left = filled - len(came)
        await_left(lambda: self._held(queue), left)

    def _held(self, queue: str) -> int:
        with self._streams.session() as session:
            return int(session.get(f"$JS.API.STREAM.INFO.{queue}")["state"]["messages"])
