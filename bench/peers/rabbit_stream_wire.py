"""RabbitMQ's streams over the protocol of its plugin rabbitmq_stream, in plain bytes.

A request is one Publish frame with all its messages (several, if they are more than the server
takes in a frame), each an entry of its own, uncompressed. Messages have publishing ids, by which
the server confirms them; as the publisher has no name, it compares them with nothing, so every
request has the same ones. The confirms of one publisher come in the order of its messages: they
are counted. `acks` makes no difference, as a stream confirms what a majority of its members has
written.

Each group reads the stream from its first message by a subscription of its own. The server sends as
many chunks as it has credit for; a consumer begins with CREDIT_CHUNKS and gives back what it used
as soon as that is CREDIT_EVERY_CHUNKS. It does not do so chunk by chunk, because the server pauses
for a millisecond when it is given credit at the end of a stream.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from .blocking import own_connection, read_exactly
from .wire import PeerError, Received, Wire

WHO = "RabbitMQ"
CREDIT_CHUNKS = 100
CREDIT_EVERY_CHUNKS = 50
MANAGE_S_MAX = 60.0

DECLARE_PUBLISHER, PUBLISH, PUBLISH_CONFIRM, PUBLISH_ERROR = 1, 2, 3, 4
SUBSCRIBE, DELIVER, CREDIT = 7, 8, 9
CREATE, DELETE, METADATA_UPDATE = 13, 14, 16
PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN, CLOSE = 17, 18, 19, 20, 21, 22
VERSION = 1
IS_RESPONSE = 0x8000
OK = 1
USER_CHUNK = 0
OFFSET_FIRST = 1
PUBLISHER = SUBSCRIPTION = 1
CODES = {
    2: "the stream does not exist",
    5: "the stream exists already",
    6: "the stream is not available",
    8: "authentication failure",
    12: "no access to the virtual host",
    14: "the frame is too large",
    15: "internal error",
    16: "access refused",
    17: "precondition failed (also when memory or disk run short)",
    18: "the publisher does not exist",
}

_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">IHH")  # size, key, version
_RESPONSE = struct.Struct(">IH")  # correlation, code
_CONFIRM = struct.Struct(">BI")  # publisher, how many ids
_PUBLISH = struct.Struct(">BI")
_ENTRY = struct.Struct(">QI")  # publishing id, size
_ERROR = struct.Struct(">BIQH")  # publisher, how many, the first id and its code
_DELIVER = struct.Struct(">IHHBBBHI")  # as _HEAD; subscription, magic, type, entries, records
_TUNE = struct.Struct(">II")  # frame bytes, heartbeat seconds


def command(key: int, content: bytes) -> bytes:
    return _HEAD.pack(_HEAD.size - _SIZE.size + len(content), key, VERSION) + content


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def meaning(code: int) -> str:
    return f"{CODES.get(code, 'see the protocol reference')} (code {code})"


def raise_if_refused(key: int, content: bytes, what: str) -> None:
    """Raises PeerError for commands by which the server ends or refuses something."""
    if key == CLOSE:
        code, length = struct.unpack_from(">HH", content, 4)
        reason = content[8 : 8 + length].decode(errors="replace")
        raise PeerError(f"{WHO} closed the connection upon {what}: {reason} (code {code})")
    if key == PUBLISH_ERROR:
        *_, code = _ERROR.unpack_from(content)
        raise PeerError(f"{WHO} refused {what}: {meaning(code)}")
    if key == METADATA_UPDATE:
        (code,) = struct.unpack_from(">H", content)
        raise PeerError(f"{WHO} ended {what}: {meaning(code)}")
    if key == CREDIT | IS_RESPONSE:
        (code,) = struct.unpack_from(">H", content)
        raise PeerError(f"{WHO} refused credit for {what}: {meaning(code)}")
    if key & IS_RESPONSE:
        _, code = _RESPONSE.unpack_from(content)
        if code != OK:
            raise PeerError(f"{WHO} refused {what}: {meaning(code)}")


class Session:
    """A connection that was logged in to, heartbeats off."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._calls = 0
        self.call(PEER_PROPERTIES, _SIZE.pack(0), "the connection")
        self.call(SASL_HANDSHAKE, b"", "the login")
        login = b"\0guest\0guest"
        self.call(
            SASL_AUTHENTICATE, text("PLAIN") + _SIZE.pack(len(login)) + login, "the login as guest"
        )
        self.frame_bytes_max, _ = _TUNE.unpack(self._answer(TUNE, "the login as guest"))
        sock.sendall(command(TUNE | IS_RESPONSE, _TUNE.pack(self.frame_bytes_max, 0)))
        self.call(OPEN, text("/"), "to open the virtual host /")

    def call(self, key: int, content: bytes, what: str) -> None:
        """Asks for `what`; PeerError when it is refused."""
        self._calls += 1
        self._sock.sendall(command(key, _SIZE.pack(self._calls) + content))
        self._answer(key | IS_RESPONSE, what)

    def close(self) -> None:
        self.call(CLOSE, struct.pack(">H", OK) + text("done"), "to close the connection")

    def _answer(self, wanted: int, what: str) -> bytes:
        while True:
            (size,) = _SIZE.unpack(read_exactly(self._sock, _SIZE.size, WHO))
            frame = read_exactly(self._sock, size, WHO)
            key, _ = struct.unpack_from(">HH", frame)
            raise_if_refused(key, frame[4:], what)
            if key == wanted:
                return frame[4:]


class StreamPublisher:
    """Counts the confirmed messages of one publisher."""

    def __init__(self, request: bytes, messages: int) -> None:
        self.request: bytes | bytearray = request
        self._messages = messages
        self._rest = b""
        self._confirmed = 0

    def acknowledged(self, data: memoryview) -> int:
        whole = self._rest + data if self._rest else data
        at, end = 0, len(whole)
        while end - at >= _HEAD.size:
            size, key, _ = _HEAD.unpack_from(whole, at)
            after: int = at + _SIZE.size + size
            if after > end:
                break
            if key == PUBLISH_CONFIRM:
                _, count = _CONFIRM.unpack_from(whole, at + _HEAD.size)
                self._confirmed += count
            else:
                raise_if_refused(
                    key, bytes(whole[at + _HEAD.size : after]), "a message that was published"
                )
            at = after
        self._rest = bytes(whole[at:])
        requests, self._confirmed = divmod(self._confirmed, self._messages)
        return requests


class StreamConsumer:
    """Counts the messages of chunks by their headers; the messages themselves are skipped."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self.first: bytes | bytearray = command(
            SUBSCRIBE,
            _SIZE.pack(0)
            + bytes([SUBSCRIPTION])
            + text(stream)
            + struct.pack(">HH", OFFSET_FIRST, CREDIT_CHUNKS),
        )
        self._rest = b""
        self._skip_bytes = 0
        """What is still to come of a chunk whose header was read."""
        self._open_messages = 0
        """Those of that chunk."""
        self._used_chunks = 0

    def received(self, data: memoryview) -> Received:
        whole = self._rest + data if self._rest else data
        at, end, messages = self._skip_bytes, len(whole), 0
        if at <= end:
            messages, self._open_messages = self._open_messages, 0
        while end - at >= _HEAD.size:
            size, key, _ = _HEAD.unpack_from(whole, at)
            after: int = at + _SIZE.size + size
            if key != DELIVER:
                if after > end:
                    break
                self._look_at(key, bytes(whole[at + _HEAD.size : after]))
            elif end - at < _DELIVER.size:
                break
            else:
                *_, kind, _, records = _DELIVER.unpack_from(whole, at)
                self._used_chunks += 1
                count = records if kind == USER_CHUNK else 0
                if after > end:
                    self._open_messages = count
                else:
                    messages += count
            at = after
        self._skip_bytes = max(at - end, 0)
        self._rest = bytes(whole[at:])
        return Received(messages, self._credit())

    def _look_at(self, key: int, content: bytes) -> None:
        raise_if_refused(key, content, f"to deliver from {self._stream}")

    def _credit(self) -> bytes | None:
        if self._used_chunks < CREDIT_EVERY_CHUNKS:
            return None
        used, self._used_chunks = self._used_chunks, 0
        return command(CREDIT, struct.pack(">BH", SUBSCRIPTION, used))


class RabbitStreamWire(Wire):
    """Streams of the server at `host` and `port`; a topic is a stream."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def make(self, topic: str, *, groups: int = 1) -> None:
        with self.session(MANAGE_S_MAX) as session:
            session.call(CREATE, text(topic) + _SIZE.pack(0), f"the stream {topic}")

    def remove(self, topic: str) -> None:
        with self.session(MANAGE_S_MAX) as session:
            session.call(DELETE, text(topic), f"to delete the stream {topic}")

    def publisher(
        self, sock: socket.socket, topic: str, *, size: int, messages: int, acks: str
    ) -> StreamPublisher:
        session = Session(sock)
        nameless = bytes([PUBLISHER]) + text("") + text(topic)
        session.call(DECLARE_PUBLISHER, nameless, f"to publish to the stream {topic}")
        return StreamPublisher(request(size, messages, session.frame_bytes_max), messages)

    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> StreamConsumer:
        Session(sock)
        return StreamConsumer(topic)

    @contextlib.contextmanager
    def session(self, seconds_max: float) -> Iterator[Session]:
        """A connection of its own, closed at the end."""
        with own_connection(self._address, seconds_max, WHO) as sock:
            session = Session(sock)
            yield session
            session.close()


def request(size: int, messages: int, frame_bytes_max: int) -> bytes:
    """So many messages in as few frames as the server allows."""
    overhead = _HEAD.size - _SIZE.size + _PUBLISH.size
    fit = (frame_bytes_max - overhead) // (_ENTRY.size + size) if frame_bytes_max else messages
    if fit < 1:
        raise PeerError(f"{WHO} takes frames of {frame_bytes_max} bytes: too few for {size}")
    body = b"x" * size
    frames = []
    for start in range(0, messages, fit):
        ids = range(start, min(start + fit, messages))
        entries = b"".join(_ENTRY.pack(number, size) + body for number in ids)
        frames.append(command(PUBLISH, _PUBLISH.pack(PUBLISHER, len(ids)) + entries))
    return b"".join(frames)
