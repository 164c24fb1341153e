"""Redis Streams over Redis's protocol (RESP), in plain bytes.

A topic is one stream. Redis has no batches for it: a request is that many XADDs in one write, each
answered with the entry's number. `acks` makes no difference, as there is one copy.

A group is a consumer group of the stream, read by XREADGROUP, whose request is the same each time
(XREAD wants the number of the last entry in it). NOACK, so that Redis keeps no list of what was
given out and not acknowledged. An answer comes as soon as there is an entry, with up to
ENTRIES_MAX of them, and the next request follows when it is whole.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator

from .blocking import own_connection
from .marked import END, payload
from .wire import PeerError, Received, Wire

WHO = "Redis"
MANAGE_S_MAX = 120.0
"""Deleting a stream frees every message while the caller waits."""
ENTRIES_MAX = 1000
ANSWER_LINES = 2
"""Of an XADD: the length of the entry's number, and the number."""

# One stream of one asked for; how many entries follow.
_ANSWER_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n")
_REFUSAL = re.compile(rb"^-([^\r]*)\r\n", re.MULTILINE)


def encode(*words: str | bytes) -> bytes:
    """A command as it goes over the wire."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def ask(sock: socket.socket, *words: str) -> str:
    """The answer's first line, without its kind; the commands used here have no more."""
    sock.sendall(encode(*words))
    with sock.makefile("rb") as reader:  # nothing comes that was not asked for
        line = reader.readline().decode(errors="replace")
    if not line:
        raise PeerError(f"{WHO} closed the connection while {words[0]} was awaited")
    if line.startswith("-"):
        raise PeerError(f"{WHO} refused {' '.join(words)}: {line[1:].strip()}")
    return line[1:].strip()


def _refuse_if_whole(arrived: bytes, what: str) -> None:
    if found := _REFUSAL.search(arrived):
        raise PeerError(f"{WHO} refused to {what}: {found[1].decode(errors='replace')}")


class RedisPublisher:
    """Counts lines; a refusal is a line that begins with a minus."""

    def __init__(self, topic: str, size: int, messages: int) -> None:
        self.request: bytes | bytearray = encode("XADD", topic, "*", "d", payload(size)) * messages
        self._what = f"publish to {topic}"
        self._lines_per_request = ANSWER_LINES * messages
        self._lines = 0
        self._tail = b""

    def acknowledged(self, data: memoryview) -> int:
        arrived = self._tail + data
        end = arrived.rfind(b"\n") + 1
        if arrived.startswith(b"-") or b"\n-" in arrived:
            _refuse_if_whole(arrived, self._what)
        self._tail = arrived[end:]
        lines = self._lines + arrived.count(b"\n", 0, end)
        whole, self._lines = divmod(lines, self._lines_per_request)
        return whole


class RedisConsumer:
    """Reads the number of entries at the head of an answer, then counts ends of messages: the
    answer ends with its last one.
    """

    def __init__(self, topic: str, group: str) -> None:
        self.first: bytes | bytearray = encode(
            *("XREADGROUP", "GROUP", group, "load"),
            *("COUNT", str(ENTRIES_MAX), "BLOCK", "0", "NOACK", "STREAMS", topic, ">"),
        )
        self._what = f"read {topic}"
        self._left = 0
        self._tail = b""

    def received(self, data: memoryview) -> Received:
        arrived = self._tail + data
        if not self._left:
            head = _ANSWER_HEAD.match(arrived)
            if head is None:
                _refuse_if_whole(arrived, self._what)
                self._tail = arrived
                return Received(0, None)
            self._left = int(head[1])
        messages = arrived.count(END)
        self._left -= messages
        if self._left:
            self._tail = arrived[1 - len(END) :]  # one short: no end is counted twice
            return Received(messages, None)
        self._tail = b""
        return Received(messages, self.first)


class RedisWire(Wire):
    """One server's streams."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    @contextlib.contextmanager
    def session(self, timeout_s: float = MANAGE_S_MAX) -> Iterator[socket.socket]:
        """A connection of its own."""
        with own_connection(self._address, timeout_s, WHO) as sock:
            yield sock

    def make(self, topic: str, *, groups: int = 1) -> None:
        with self.session() as sock:
            if ask(sock, "EXISTS", topic) != "0":
                raise PeerError(f"{WHO} has a key {topic} already: remove it first")
            for group in range(groups):
                ask(sock, "XGROUP", "CREATE", topic, self._group(group), "0", "MKSTREAM")

    def remove(self, topic: str) -> None:
        with self.session() as sock:
            if ask(sock, "DEL", topic) == "0":
                raise PeerError(f"{WHO} has no key {topic}")

    def publisher(
        self, sock: socket.socket, topic: str, *, size: int, messages: int, acks: str
    ) -> RedisPublisher:
        return RedisPublisher(topic, size, messages)

    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> RedisConsumer:
        name = self._group(group)
        ask(sock, "XGROUP", "SETID", topic, name, "0")  # from the start, each time
        return RedisConsumer(topic, name)

    @staticmethod
    def _group(number: int) -> str:
        return f"group-{number}"
