"""One connection to another node: requests out, answers matched to them by correlation id.

Requests may be pipelined; the peer answers in order. A request that is not answered in time closes
the connection, as in Kafka: later requests would not be answered either. The first exchange of a
connection is ApiVersions, so that nodes of adjacent releases find a common version of each API.

Invariants: every future that was handed out ends, with the body of its answer or with a
`PeerError`; `on_lost` is called once, and only after the connection had been made.

Limits: `RESPONSE_BYTES_MAX` a response; memory is allocated for what has arrived, not for what is
announced. Owned by the event loop's thread. The network is reached only by the loop's
`create_connection`.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from penstock.base.errors import ErrorCode
from penstock.kafka.sasl import Refused, Sasl
from penstock.net.large_frames import LARGE_FRAME_BYTES, LargeFrames
from penstock.peers.errors import (
    PeerIncompatible,
    PeerLost,
    PeerRefused,
    PeerTimedOut,
    PeerUnreachable,
)
from penstock.wire.apis import APIS, ApiKey, request_header_version, response_header_version
from penstock.wire.decoders import skip_tags
from penstock.wire.errors import WireError
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.schema import Message
from penstock.wire.varint import Buffer

RESPONSE_BYTES_MAX = 512 * 1024 * 1024
CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 30.0
CORRELATION_IDS = 2**31
SESSION_PART = 0.8
"""The part of a session after which another connection is made."""

API_VERSIONS_VERSION = 3
"""Every node since the first release answers it; newer ones add nothing that is needed here."""

_REQUEST = struct.Struct(">ihhih")  # length, api key, version, correlation id, client id's length
_LENGTH = struct.Struct(">i")
_LENGTH_SIZE = 4
_RESPONSE_MIN_BYTES = 4  # the correlation id
_NO_LINGER = struct.pack("ii", 1, 0)  # on, for 0 s: what is not delivered is dropped

Body: TypeAlias = Buffer | Sequence[Buffer]


class Address(NamedTuple):
    host: str
    port: int
    listener: str = ""
    """The name of the listener there, which says how it is spoken to."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Pending:
    """A request that is not answered yet."""

    __slots__ = ("future", "key", "timer", "version")

    def __init__(self, key: int, version: int, future: asyncio.Future[memoryview]) -> None:
        self.key = key
        self.version = version
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class PeerConnection(asyncio.Protocol):
    """Made by `connect`; used until `closed`."""

    __slots__ = (
        "_chunks",
        "_client_id",
        "_closes_when_idle",
        "_correlation_id",
        "_have",
        "_loop",
        "_need",
        "_on_lost",
        "_pending",
        "_transport",
        "active_s",
        "address",
        "closed",
        "session_ends_s",
        "versions",
    )

    def __init__(
        self, address: Address, client_id: str, on_lost: Callable[[PeerConnection], None]
    ) -> None:
        self.address = address
        self.versions: dict[int, range] = {}
        """What the peer serves, by API key."""
        self.closed = False
        self.session_ends_s = float("inf")
        """When the login is over, by the loop's clock, or soon before."""
        self._closes_when_idle = False
        self._loop = asyncio.get_running_loop()
        self.active_s = self._loop.time()
        self._client_id = client_id.encode()
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._pending: dict[int, _Pending] = {}
        self._chunks: list[bytes] = []  # the beginning of a frame that is still arriving
        self._have = 0  # bytes in _chunks
        self._need = _LENGTH_SIZE

    # -- calling -------------------------------------------------------------------------------

    async def connect(
        self,
        timeout_s: float = CONNECT_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        sasl: Sasl | None = None,
    ) -> None:
        """Connect, learn what the peer serves and log in; `PeerUnreachable` if that is not
        possible.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._loop.create_connection(lambda: self, *self.address[:2], ssl=tls)
                await self._learn_versions(timeout_s)
                if sasl is not None:
                    await self._log_in(sasl, timeout_s)
        except TimeoutError:
            self.close()
            raise PeerUnreachable(f"{self.address} did not answer within {timeout_s} s") from None
        except ConnectionRefusedError:
            raise PeerRefused(f"{self.address} refused the connection") from None
        except OSError as e:  # an ssl.SSLError is one
            reason = e.strerror or e
            raise PeerUnreachable(f"{self.address} cannot be reached: {reason}") from None
        except PeerLost as e:
            raise PeerUnreachable(f"{self.address} hung up: {e}") from None

    async def _log_in(self, sasl: Sasl, timeout_s: float) -> None:
        began_s = self._loop.time()
        handshake = SaslHandshakeRequest(mechanism=sasl.mechanism)
        answer: SaslHandshakeResponse = await self.send(handshake, timeout_s=timeout_s)
        if answer.error_code:
            raise self._not_let_in(sasl, ErrorCode(answer.error_code).name)
        exchange = sasl.exchange()
        token = next(exchange)
        while True:
            shown: SaslAuthenticateResponse = await self.send(
                SaslAuthenticateRequest(auth_bytes=token), timeout_s=timeout_s
            )
            if shown.error_code:
                raise self._not_let_in(sasl, shown.error_message or "")
            try:
                token = exchange.send(shown.auth_bytes)
            except StopIteration:
                break
            except Refused as e:
                raise self._not_let_in(sasl, str(e)) from None
        if shown.session_lifetime_ms > 0:
            self.session_ends_s = began_s + shown.session_lifetime_ms / 1000 * SESSION_PART

    def _not_let_in(self, sasl: Sasl, why: str) -> PeerUnreachable:
        self.close()
        return PeerUnreachable(
            f"{self.address} does not let {sasl.username!r} in by {sasl.mechanism}: {why}"
        )

    async def _learn_versions(self, timeout_s: float) -> None:
        from penstock import __version__

        request = ApiVersionsRequest(
            client_software_name="penstock", client_software_version=__version__
        )
        self.versions[ApiKey.API_VERSIONS] = range(API_VERSIONS_VERSION, API_VERSIONS_VERSION + 1)
        response = cast("ApiVersionsResponse", await self.send(request, timeout_s=timeout_s))
        for api in response.api_keys:
            self.versions[api.api_key] = range(api.min_version, api.max_version + 1)

    def common_version(self, api_key: int) -> int:
        """The highest version that both sides speak."""
        theirs = self.versions.get(api_key, range(0))
        ours = APIS[ApiKey(api_key)].stable_versions
        version = min(ours.stop, theirs.stop) - 1
        if version not in ours or version not in theirs:
            raise PeerIncompatible(
                f"{self.address} and this node have no version of {ApiKey(api_key).name} in common"
            )
        return version

    async def send(
        self, request: Message, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Any:
        """The response to `request`: an instance of the class that belongs to its own.

        The request goes out in `version`, or in the highest one that the peer knows below it.
        """
        key = type(request).API_KEY
        assert key is not None
        common = self.common_version(key)
        version = common if version is None else min(version, common)
        body = await self.send_raw(key, version, request.encode_parts(version), timeout_s)
        try:
            return response_type(type(request)).decode_from(body, 0, version)[0]
        except WireError as e:
            self.close()
            raise PeerLost(f"{self.address} sent what cannot be read: {e}") from e

    def send_raw(
        self, api_key: int, version: int, body: Body, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> asyncio.Future[memoryview]:
        """Send an encoded request; the future gives the encoded response after its header.

        The buffers of `body` may be reused as soon as this returns, unless they are large.
        """
        future: asyncio.Future[memoryview] = self._loop.create_future()
        transport = self._transport
        if transport is None or self.closed:
            future.set_exception(PeerLost(f"the connection to {self.address} is closed"))
            return future
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) % CORRELATION_IDS
        pending = _Pending(api_key, version, future)
        pending.timer = self._loop.call_later(timeout_s, self._timed_out, pending, timeout_s)
        self._pending[correlation_id] = pending
        parts = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
        parts.insert(0, self._header(api_key, version, correlation_id, sum(map(len, parts))))
        self.active_s = self._loop.time()
        transport.writelines(parts)
        return future

    def _header(self, api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
        tags = b"\0" if request_header_version(api_key, version) == 2 else b""
        size = _REQUEST.size - _LENGTH_SIZE + len(self._client_id) + len(tags) + body_bytes
        fixed = _REQUEST.pack(size, api_key, version, correlation_id, len(self._client_id))
        return fixed + self._client_id + tags

    @property
    def idle(self) -> bool:
        """No request is unanswered."""
        return not self._pending

    def close_when_idle(self) -> None:
        """Nothing more is sent; what is under way is answered first."""
        self._closes_when_idle = True
        if not self._pending:
            self.close()

    def close(self) -> None:
        """Close the connection; unanswered requests fail as lost."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
        self._fail(PeerLost(f"the connection to {self.address} was closed"))

    def _timed_out(self, pending: _Pending, timeout_s: float) -> None:
        name = ApiKey(pending.key).name
        if not pending.future.done():
            pending.future.set_exception(
                PeerTimedOut(f"{self.address} did not answer {name} within {timeout_s} s")
            )
        self._drop_unsent()
        self.close()

    def _drop_unsent(self) -> None:
        """Close without delivering what the system has buffered. It could arrive long after the
        request was repeated over another connection: a late marker would then end a transaction
        that began since.
        """
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)

    def _fail(self, error: PeerLost) -> None:
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if request.timer is not None:
                request.timer.cancel()
            if not request.future.done():
                request.future.set_exception(error)

    # -- the transport's callbacks -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed = True
        self._chunks.clear()
        self._fail(PeerLost(f"{self.address} closed the connection"))
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                self._maybe_receive_directly()
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        self._cut_frames(data)

    def _cut_frames(self, data: bytes) -> None:
        view = memoryview(data)
        position, end = 0, len(data)
        need = _LENGTH_SIZE
        while end - position >= _LENGTH_SIZE and not self.closed:
            (size,) = _LENGTH.unpack_from(data, position)
            if not _RESPONSE_MIN_BYTES <= size <= RESPONSE_BYTES_MAX:
                self.close()
                return
            need = _LENGTH_SIZE + size
            if end - position < need:
                break
            self._answered(view[position + _LENGTH_SIZE : position + need])
            position += need
            need = _LENGTH_SIZE
        if position < end and not self.closed:
            rest = data[position:] if position else data
            self._chunks.append(rest)
            self._have = len(rest)
            self._need = need
            self._maybe_receive_directly()

    def _maybe_receive_directly(self) -> None:
        if self._have >= LARGE_FRAME_BYTES:
            beginning = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks.clear()
            self._switch_protocol(LargeFrames(self, beginning, self._need, RESPONSE_BYTES_MAX))

    def _switch_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if self._transport is not None and not self.closed:
            # The transport chooses its way of reading when reading begins.
            self._transport.pause_reading()
            self._transport.set_protocol(protocol)
            self._transport.resume_reading()

    def large_frame_begun(self, size: int) -> None:
        """Nothing happens before the frame is complete."""

    def large_frame_arrived(self, frame: memoryview) -> None:
        if not self.closed:
            self._answered(frame)

    def large_frames_ended(self, rest: bytes) -> None:
        self._switch_protocol(self)
        self.data_received(rest)

    def touch(self) -> None:
        """A part of a large answer has arrived."""
        self.active_s = self._loop.time()

    def _answered(self, frame: memoryview) -> None:
        self.active_s = self._loop.time()
        (correlation_id,) = _LENGTH.unpack_from(frame)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            self.close()  # an answer without a request: the stream cannot be trusted
            return
        if pending.timer is not None:
            pending.timer.cancel()
        position = _LENGTH_SIZE
        try:
            if response_header_version(pending.key, pending.version) == 1:
                position = skip_tags(frame, position, len(frame))
        except (IndexError, ValueError):
            pending.future.set_exception(PeerLost(f"{self.address} sent an unreadable header"))
            self.close()
            return
        if not pending.future.done():
            pending.future.set_result(frame[position:])
        if self._closes_when_idle and not self._pending:
            self.close()


@functools.cache
def response_type(request: type[Message]) -> type[Message]:
    """The class of the responses to `request`; both are in the module of their API."""
    name = request.__name__.removesuffix("Request") + "Response"
    return cast("type[Message]", getattr(sys.modules[request.__module__], name))
