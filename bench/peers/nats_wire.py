"""NATS JetStream's protocol, in plain bytes.

A topic is a stream of its own with one subject of the same name, in files, one copy. NATS has no
batches: a request is that many PUBs in one write, each with the publisher's inbox as its reply
subject, to which the stream sends one acknowledgement per message. `acks` makes no difference, as
there is one copy.

A group is a pull consumer of its own, without acknowledgements and with its state in memory, as
the ordered consumers of NATS's clients have it. Between one and two requests of PULL_MESSAGES are
always outstanding, so messages come when they are there, the server never waits, and it never has
more to send than those. Push consumers were tried and are no faster: without flow control the
server cuts off a reader that falls 64 MB behind, and with it each chunk is searched for requests.

Publishers and consumers answer no PING of the server, which would need a search in everything that
arrives: the server has to be configured so that it does not mind (`nats_server.py`).
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import socket
from collections.abc import Iterator
from typing import Any

from .blocking import own_connection
from .marked import END, payload
from .wire import PeerError, Received, Wire

WHO = "NATS"
MANAGE_S_MAX = 120.0
"""Deleting a stream removes its files while the caller waits."""
PULL_MESSAGES = 1000
"""Two such requests have to stay below 64 MB, where the server calls a consumer slow: that is so
for messages of up to 32 KB."""
PULL_REQUESTS = 2
CONSUMER_IDLE_NS = 3600 * 1_000_000_000
"""When a consumer that nobody asks is forgotten; the server's 5 s may pass between two loads."""
NOT_FOUND = 404

INBOX_BYTES = 8
TAIL_BYTES = 256
"""More than any status or error that the server sends."""
ACK_END = b"}\r\n"
ACK_SEQUENCE = b', "seq":'
"""Once in each acknowledgement. A refusal is encoded without the blank, so it has none."""
ACK_LINES = 2

# Without "protocol": 1 the server sends INFO only once.
_CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nPING\r\n'
)
_REFUSAL = re.compile(rb'(?:-ERR |NATS/1\.0 |\{"error":)[^\r]*(?=\r\n)')
_SID = 1


def inbox() -> bytes:
    """A subject of one connection's own: subjects are the whole server's."""
    return b"_INBOX." + secrets.token_hex(INBOX_BYTES).encode()


def _refuse_if_refused(data: bytes, what: str) -> None:
    if found := _REFUSAL.search(data):
        raise PeerError(f"{WHO} refused to {what}: {found[0].decode(errors='replace')}")


class Session:
    """What is said on a blocking connection before the load has it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # Whatever it may read beyond the last answer can only be a PING.
        self._reader = sock.makefile("rb")
        sock.sendall(_CONNECT)
        self.wait_for(b"PONG")

    def wait_for(self, *verbs: bytes) -> tuple[bytes, bytes]:
        """The next frame of these kinds: which it is, and its body."""
        while line := self._reader.readline():
            verb, *fields = line.split() or [b""]
            if verb == b"-ERR":
                raise PeerError(f"{WHO} refused: {line.decode(errors='replace').strip()}")
            body = self._reader.read(int(fields[-1]) + 2) if verb in (b"MSG", b"HMSG") else b""
            if verb in verbs:
                return verb, body
        raise PeerError(f"{WHO} closed the connection while an answer was awaited")

    def ask(self, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request of JetStream's interface."""
        body = json.dumps(request).encode() if request is not None else b""
        own = inbox()
        self._sock.sendall(
            b"SUB %b %d\r\nUNSUB %d 1\r\n" % (own, _SID, _SID)
            + b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), own, len(body), body)
        )
        verb, answer = self.wait_for(b"MSG", b"HMSG")
        if verb == b"HMSG":  # a status instead of an answer
            raise PeerError(f"{WHO} has nobody who answers {subject}: is JetStream enabled?")
        found: dict[str, Any] = json.loads(answer)
        return found

    def get(self, subject: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """The same, when it may not be refused."""
        answer = self.ask(subject, request)
        if error := answer.get("error"):
            raise PeerError(f"{WHO} refused {subject}: {error.get('description', error)}")
        return answer


class NatsPublisher:
    """Counts acknowledgements by their sequence numbers; whatever else arrives shows in the number
    of lines, or in front of an acknowledgement that is not whole yet.
    """

    def __init__(self, topic: str, inbox: bytes, size: int, messages: int) -> None:
        head = b"PUB %b %b %d\r\n" % (topic.encode(), inbox, size)
        self.request: bytes | bytearray = (head + payload(size) + b"\r\n") * messages
        self._what = f"publish to {topic}"
        self._messages = messages
        self._acked = 0
        self._tail = b""

    def acknowledged(self, data: memoryview) -> int:
        arrived = self._tail + data
        at = arrived.rfind(ACK_END)
        end = at + len(ACK_END) if at >= 0 else 0
        acks = arrived.count(ACK_SEQUENCE, 0, end)
        self._tail = tail = arrived[end:]
        if arrived.count(b"\n", 0, end) != ACK_LINES * acks or tail[:1] not in b"M":
            _refuse_if_refused(arrived, self._what)
        whole, self._acked = divmod(self._acked + acks, self._messages)
        return whole


class NatsConsumer:
    """Counts the ends of messages and asks for as many as have come."""

    def __init__(self, topic: str, consumer: str) -> None:
        own = inbox()
        body = b'{"batch":%d}' % PULL_MESSAGES
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{topic}.{consumer}".encode()
        self._pull = b"PUB %b %b %d\r\n%b\r\n" % (subject, own, len(body), body)
        self.first: bytes | bytearray = b"SUB %b %d\r\n" % (own, _SID) + self._pull * PULL_REQUESTS
        self._what = f"read {topic}"
        self._left = PULL_MESSAGES
        self._tail = b""

    def received(self, data: memoryview) -> Received:
        before = self._tail
        arrived = before + data
        messages = arrived.count(END) - before.count(END)
        self._tail = tail = arrived[-TAIL_BYTES:]
        if b"NATS/1.0 " in tail or b"-ERR " in tail:  # nothing comes after it
            _refuse_if_refused(tail, self._what)
        self._left -= messages
        if self._left > 0:
            return Received(messages, None)
        pulls = 1 + -self._left // PULL_MESSAGES
        self._left += pulls * PULL_MESSAGES
        return Received(messages, self._pull * pulls)


class NatsWire(Wire):
    """One server's streams."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    @contextlib.contextmanager
    def session(self, timeout_s: float = MANAGE_S_MAX) -> Iterator[Session]:
        """A connection of its own."""
        with own_connection(self._address, timeout_s, WHO) as sock:
            yield Session(sock)

    def make(self, topic: str, *, groups: int = 1, retention: str = "limits") -> None:
        """Groups need nothing: each makes its consumer when it comes."""
        config = {"name": topic, "subjects": [topic], "storage": "file", "num_replicas": 1}
        config["retention"] = retention
        with self.session() as session:
            # A stream that exists with the same settings would be taken for a new one.
            found = session.ask(f"$JS.API.STREAM.INFO.{topic}")
            if found.get("error", {}).get("code") != NOT_FOUND:
                raise PeerError(f"{WHO} has a stream {topic} already: remove it first")
            session.get(f"$JS.API.STREAM.CREATE.{topic}", config)

    def remove(self, topic: str) -> None:
        with self.session() as session:
            session.get(f"$JS.API.STREAM.DELETE.{topic}")

    def publisher(
        self, sock: socket.socket, topic: str, *, size: int, messages: int, acks: str
    ) -> NatsPublisher:
        session, own = Session(sock), inbox()
        sock.sendall(b"SUB %b %d\r\nPING\r\n" % (own, _SID))
        session.wait_for(b"PONG")
        return NatsPublisher(topic, own, size, messages)

    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> NatsConsumer:
        config = {
            "deliver_policy": "all",
            "ack_policy": "none",
            "replay_policy": "instant",
            "num_replicas": 1,
            "mem_storage": True,
            "inactive_threshold": CONSUMER_IDLE_NS,
        }
        made = Session(sock).get(
            f"$JS.API.CONSUMER.CREATE.{topic}", {"stream_name": topic, "config": config}
        )
        return NatsConsumer(topic, made["name"])
