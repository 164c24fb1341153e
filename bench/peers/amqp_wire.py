"""RabbitMQ's quorum queues over AMQP 0-9-1, in plain bytes.

A group is a queue, since a queue gives each message to one consumer only. One group: messages go
through the default exchange straight to its queue. Several groups: they go to a fanout exchange
that is bound to each group's queue, and a message is confirmed when every queue has it.

Publishing has no batches: a request is that many basic.publish, each with its header and body, in
one write, with persistent messages and publisher confirms. `acks` makes no difference, as a quorum
queue confirms what a majority of its members has written. A confirm covers one message or all up
to it, and single ones may overtake; a request counts as acknowledged when it and all before it are.

A consumer holds up to PREFETCH_MESSAGES that it has not acknowledged (what RabbitMQ itself takes
for a quorum queue's consumer without a limit) and acknowledges every ACK_EVERY_MESSAGES, all at
once. Smaller lots (100) and larger windows (5,000 to 30,000) were tried and slower.

The wire remembers which topics it made: `publisher` and `remove` need the number of their groups.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from .blocking import own_connection, read_exactly
from .wire import PeerError, Received, Wire

WHO = "RabbitMQ"
PREFETCH_MESSAGES = 2000
ACK_EVERY_MESSAGES = 500
MANAGE_S_MAX = 60.0

METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = 0xCE
FRAME_EXTRA_BYTES = 8  # type, channel and size before the payload, one end byte behind it
CHANNEL = 1
PERSISTENT = 2
DELIVERY_MODE_FLAG = 1 << 12
PASSIVE, DURABLE = 1, 2
MULTIPLE = 1

_FRAME = struct.Struct(">BHI")
_IDS = struct.Struct(">HH")
_ACK = struct.Struct(">QB")
_TUNE = struct.Struct(">HIH")
_CONTENT = struct.Struct(">HHQ")  # class, weight, body size


class Id(NamedTuple):
    """A method of the protocol: its class, and its number in it."""

    group: int
    number: int


START, START_OK = Id(10, 10), Id(10, 11)
TUNE, TUNE_OK = Id(10, 30), Id(10, 31)
OPEN, OPEN_OK = Id(10, 40), Id(10, 41)
CLOSE, CLOSE_OK = Id(10, 50), Id(10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK = Id(20, 10), Id(20, 11)
CHANNEL_CLOSE = Id(20, 40)
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = Id(40, 10), Id(40, 11)
EXCHANGE_DELETE, EXCHANGE_DELETE_OK = Id(40, 20), Id(40, 21)
QUEUE_DECLARE, QUEUE_DECLARE_OK = Id(50, 10), Id(50, 11)
QUEUE_BIND, QUEUE_BIND_OK = Id(50, 20), Id(50, 21)
QUEUE_DELETE, QUEUE_DELETE_OK = Id(50, 40), Id(50, 41)
QOS, QOS_OK = Id(60, 10), Id(60, 11)
CONSUME, CONSUME_OK = Id(60, 20), Id(60, 21)
CANCEL, CANCEL_OK = Id(60, 30), Id(60, 31)
PUBLISH = Id(60, 40)
DELIVER = Id(60, 60)
ACK = Id(60, 80)
NACK = Id(60, 120)
SELECT, SELECT_OK = Id(85, 10), Id(85, 11)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + bytes([FRAME_END])


def method(which: Id, arguments: bytes, channel: int = CHANNEL) -> bytes:
    return frame(METHOD, channel, _IDS.pack(*which) + arguments)


def short_text(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def long_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">I", len(data)) + data


def table(fields: dict[str, str | bool]) -> bytes:
    """A field table of texts and truth values."""
    data = b"".join(
        short_text(key) + (b"t" + bytes([value]) if isinstance(value, bool) else _field(value))
        for key, value in fields.items()
    )
    return struct.pack(">I", len(data)) + data


def _field(text: str) -> bytes:
    return b"S" + long_text(text)


def raise_if_refused(which: Id, arguments: bytes, what: str) -> None:
    """Raises PeerError for methods by which a server ends or refuses something."""
    if which in (CLOSE, CHANNEL_CLOSE):
        (code,) = struct.unpack_from(">H", arguments)
        text = arguments[3 : 3 + arguments[2]].decode(errors="replace")
        raise PeerError(f"{WHO} refused {what}: {code} {text}")
    if which == NACK:
        raise PeerError(f"{WHO} refused {what}: it could not store the message (basic.nack)")
    if which == CANCEL:
        raise PeerError(f"{WHO} ended {what}: its queue is gone (basic.cancel)")


class Session:
    """A connection that was logged in to, with its one channel open, heartbeats off."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.sendall(b"AMQP\x00\x00\x09\x01")
        self._answer(START, "the connection")
        abilities = table(
            {
                "publisher_confirms": True,
                "basic.nack": True,
                "consumer_cancel_notify": True,
                "authentication_failure_close": True,
            }
        )
        about = short_text("capabilities") + b"F" + abilities
        login = struct.pack(">I", len(about)) + about + short_text("PLAIN")
        login += long_text("\0guest\0guest") + short_text("en_US")
        sock.sendall(method(START_OK, login, channel=0))
        channels, self.frame_bytes_max, _ = _TUNE.unpack(self._answer(TUNE, "the login as guest"))
        sock.sendall(method(TUNE_OK, _TUNE.pack(channels, self.frame_bytes_max, 0), channel=0))
        sock.sendall(method(OPEN, short_text("/") + b"\0\0", channel=0))
        self._answer(OPEN_OK, "to open the virtual host /")
        self.call(CHANNEL_OPEN, b"\0", CHANNEL_OPEN_OK, "a channel")

    def call(self, which: Id, arguments: bytes, answer: Id, what: str) -> bytes:
        """Asks for `what`; the arguments of the answer."""
        self._sock.sendall(method(which, arguments))
        return self._answer(answer, what)

    def close(self) -> None:
        self._sock.sendall(method(CLOSE, struct.pack(">H", 200) + b"\0" * 5, channel=0))
        self._answer(CLOSE_OK, "to close the connection")

    def declare_queue(self, queue: str, *, passive: bool = False) -> int:
        """Makes the quorum queue, or with `passive` asks for it; how many messages it holds."""
        bits = DURABLE | (PASSIVE if passive else 0)
        arguments = b"\0\0" + short_text(queue) + bytes([bits]) + table({"x-queue-type": "quorum"})
        answer = self.call(QUEUE_DECLARE, arguments, QUEUE_DECLARE_OK, f"the queue {queue}")
        (held,) = struct.unpack_from(">I", answer, 1 + answer[0])
        return int(held)

    def _answer(self, wanted: Id, what: str) -> bytes:
        while True:
            head = read_exactly(self._sock, _FRAME.size, WHO)
            kind, _, size = _FRAME.unpack(head)
            payload = read_exactly(self._sock, size + 1, WHO)[:-1]
            if kind != METHOD:
                continue
            which = Id(*_IDS.unpack_from(payload))
            raise_if_refused(which, payload[_IDS.size :], what)
            if which == wanted:
                return payload[_IDS.size :]


class AmqpPublisher:
    """Counts confirms of one channel."""

    def __init__(self, message: bytes, messages: int) -> None:
        self.request: bytes | bytearray = message * messages
        self._messages = messages
        self._rest = b""
        self._confirmed = 0
        """All messages up to this delivery tag are confirmed."""
        self._early: set[int] = set()
        """Confirmed ones behind a gap."""
        self._requests = 0

    def acknowledged(self, data: memoryview) -> int:
        whole = self._rest + data if self._rest else data
        at, end = 0, len(whole)
        while end - at >= _FRAME.size:
            _, _, size = _FRAME.unpack_from(whole, at)
            after: int = at + size + FRAME_EXTRA_BYTES
            if after > end:
                break
            which = Id(*_IDS.unpack_from(whole, at + _FRAME.size))
            if which == ACK:
                self._confirm(*_ACK.unpack_from(whole, at + _FRAME.size + _IDS.size))
            else:
                arguments = bytes(whole[at + _FRAME.size + _IDS.size : after])
                raise_if_refused(which, arguments, "a message that was published")
            at = after
        self._rest = bytes(whole[at:])
        before, self._requests = self._requests, self._confirmed // self._messages
        return self._requests - before

    def _confirm(self, tag: int, bits: int) -> None:
        early = self._early
        if bits & MULTIPLE:
            self._confirmed = max(self._confirmed, tag)
            if early:
                early = self._early = {t for t in early if t > tag}
        elif tag == self._confirmed + 1:
            self._confirmed = tag
        else:
            early.add(tag)
        while early and self._confirmed + 1 in early:
            self._confirmed += 1
            early.remove(self._confirmed)


class AmqpConsumer:
    """Counts deliveries of one channel, whose tags are 1, 2, 3 and so on."""

    def __init__(self, queue: str, *, tag: str = "", ack_every: int = ACK_EVERY_MESSAGES) -> None:
        """RabbitMQ thinks of a tag where there is none."""
        self._queue = queue
        self._ack_every = ack_every
        arguments = b"\0\0" + short_text(queue) + short_text(tag) + b"\0" + table({})
        self.first: bytes | bytearray = method(CONSUME, arguments)
        self._rest = b""
        self._body_left = 0
        self._messages = 0
        self._acked = 0

    def received(self, data: memoryview) -> Received:
        whole = self._rest + data if self._rest else data
        at, end, before = 0, len(whole), self._messages
        while end - at >= _FRAME.size:
            kind, _, size = _FRAME.unpack_from(whole, at)
            after: int = at + size + FRAME_EXTRA_BYTES
            if after > end:
                break
            if kind == BODY:
                self._body_left -= size
                self._messages += self._body_left == 0
            elif kind == HEADER:
                _, _, self._body_left = _CONTENT.unpack_from(whole, at + _FRAME.size)
                self._messages += self._body_left == 0
            else:
                self._look_at(bytes(whole[at + _FRAME.size : after]))
            at = after
        self._rest = bytes(whole[at:])
        return Received(self._messages - before, self._ack())

    def _look_at(self, payload: bytes) -> None:
        which = Id(*_IDS.unpack_from(payload))
        if which != DELIVER:
            raise_if_refused(which, payload[_IDS.size :], f"to deliver from {self._queue}")

    def _ack(self) -> bytes | None:
        if self._messages - self._acked < self._ack_every:
            return None
        self._acked = self._messages
        return method(ACK, _ACK.pack(self._acked, MULTIPLE))


class AmqpWire(Wire):
    """Quorum queues of the server at `host` and `port`."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._groups: dict[str, int] = {}

    def make(self, topic: str, *, groups: int = 1) -> None:
        with self.session(MANAGE_S_MAX) as session:
            if groups > 1:
                kind = short_text(topic) + short_text("fanout") + bytes([DURABLE]) + table({})
                session.call(
                    EXCHANGE_DECLARE, b"\0\0" + kind, EXCHANGE_DECLARE_OK, f"the exchange {topic}"
                )
            for queue in queues_of(topic, groups):
                if held := session.declare_queue(queue):
                    raise PeerError(f"the queue {queue} holds {held} messages: remove it first")
                if groups > 1:
                    to = b"\0\0" + short_text(queue) + short_text(topic) + short_text("") + b"\0"
                    session.call(QUEUE_BIND, to + table({}), QUEUE_BIND_OK, f"to bind {queue}")
        self._groups[topic] = groups

    def remove(self, topic: str) -> None:
        groups = self._groups_of(topic)
        with self.session(MANAGE_S_MAX) as session:
            for queue in queues_of(topic, groups):
                gone = b"\0\0" + short_text(queue) + b"\0"
                session.call(QUEUE_DELETE, gone, QUEUE_DELETE_OK, f"to delete {queue}")
            if groups > 1:
                gone = b"\0\0" + short_text(topic) + b"\0"
                session.call(EXCHANGE_DELETE, gone, EXCHANGE_DELETE_OK, f"to delete {topic}")
        del self._groups[topic]

    def publisher(
        self, sock: socket.socket, topic: str, *, size: int, messages: int, acks: str
    ) -> AmqpPublisher:
        groups = self._groups_of(topic)
        session = Session(sock)
        for queue in queues_of(topic, groups):  # a message without a queue would be confirmed
            session.declare_queue(queue, passive=True)
        session.call(SELECT, b"\0", SELECT_OK, "publisher confirms")
        exchange, key = (topic, "") if groups > 1 else ("", queues_of(topic, groups)[0])
        return AmqpPublisher(message(exchange, key, size, session.frame_bytes_max), messages)

    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> AmqpConsumer:
        self.open_window(sock, PREFETCH_MESSAGES)
        return AmqpConsumer(queue_of(topic, group))

    def open_window(self, sock: socket.socket, messages: int) -> None:
        """Opens `sock` for consumers that may hold so many messages without acknowledgement."""
        window = struct.pack(">IHB", 0, messages, 0)
        Session(sock).call(QOS, window, QOS_OK, f"a window of {messages} messages")

    @contextlib.contextmanager
    def session(self, seconds_max: float) -> Iterator[Session]:
        """A connection of its own, closed at the end."""
        with own_connection(self._address, seconds_max, WHO) as sock:
            session = Session(sock)
            yield session
            session.close()

    def _groups_of(self, topic: str) -> int:
        if topic not in self._groups:
            raise PeerError(f"{WHO} has no topic {topic} of this wire's making: make it first")
        return self._groups[topic]


def queue_of(topic: str, group: int) -> str:
    return f"{topic}.{group}"


def queues_of(topic: str, groups: int) -> list[str]:
    return [queue_of(topic, group) for group in range(groups)]


def message(exchange: str, key: str, size: int, frame_bytes_max: int) -> bytes:
    """One persistent message: the method, the content's header, and the body in as few frames as
    the server allows."""
    publish = method(PUBLISH, b"\0\0" + short_text(exchange) + short_text(key) + b"\0")
    about = _CONTENT.pack(PUBLISH.group, 0, size) + struct.pack(
        ">HB", DELIVERY_MODE_FLAG, PERSISTENT
    )
    body_bytes_max = frame_bytes_max - FRAME_EXTRA_BYTES if frame_bytes_max else size
    bodies = [
        frame(BODY, CHANNEL, b"x" * min(body_bytes_max, size - start))
        for start in range(0, size, body_bytes_max)
    ]
    return publish + frame(HEADER, CHANNEL, about) + b"".join(bodies)
