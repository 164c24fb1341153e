"""One client connection: framing, the order of answers, and flow control.

Duty: cut the byte stream into frames, start requests, and write their answers in the order in
which the requests came. Owned by the event loop's thread; nothing here blocks or awaits.

Invariants:
* A connection runs one request at a time. The one exception: a Produce may start while earlier
  Produces of the connection wait for their acknowledgement; their appends have been made in order
  already.
* An answer is written only when every earlier request of the connection has been answered.
* What has arrived whole is served, also if the peer has hung up since. It is dropped when the
  connection is lost, as by an answer that cannot be delivered any more.
* A peer that does not read its answers is not read from: while the transport's write buffer is
  above its high mark no further request starts.
* None starts while the connection is muted, and nothing is read; answers go out all the same. So a
  client that is over a quota has its answer, with the time that it has to wait, at once.
* After `LARGE_FRAMES_PER_TURN` other connections have their turn: a loop goes on reading for as
  long as a peer keeps up, 32 times in uvloop.
* They also have it when the requests of one peer have taken `TURN_NS_MAX`: a loop reads up to
  256 KB, which are thousands of small requests. What was read and is not yet cut into frames waits
  in `_uncut`, and nothing more is read meanwhile.

Limits: `socket.request.max.bytes` a frame, `WAITING_REQUESTS_MAX` frames and
`WAITING_BYTES_MAX` that wait behind another request, `UNANSWERED_PRODUCES_MAX` started ones,
`queued.max.request.bytes` over all connections (`LOGIN_BYTES_MAX` before a login), and of unsent
answers `WRITE_BUFFER_HIGH_BYTES` before the connection stops (one answer may exceed it).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, cast

from penstock.auth.principal import NOBODY, Principal
from penstock.net.answer_stream import WRITE_BUFFER_HIGH_BYTES, AnswerStream, has_region
from penstock.net.exchange import Exchange
from penstock.net.large_frames import LARGE_FRAME_BYTES, LargeFrames
from penstock.net.turn import TURN_NS_MAX

if TYPE_CHECKING:
    from penstock.net.server import Handler, Server

WAITING_REQUESTS_MAX: Final = 64
UNANSWERED_PRODUCES_MAX = 64
WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
LARGE_FRAMES_PER_TURN: Final = 4
"""Fewer cost throughput, more cost other connections time."""

log = logging.getLogger("penstock.net")

_LENGTH: Final = struct.Struct(">i")
_LENGTH_SIZE: Final = 4
REQUEST_BYTES_MIN: Final = 8
"""API key, version, correlation id."""
_PRODUCE_KEY: Final = memoryview(b"\x00\x00")

# Why no request starts: bits, so that the way of a request asks once.
_UNREAD: Final = 1  # the peer does not read its answers
_MUTED: Final = 2


class Connection:
    """An `asyncio.Protocol` by its methods. It does not inherit from it: mypyc compiles no class of
    a base that is not compiled.
    """

    __slots__ = (
        "_chunks",
        "_entered",
        "_frame_bytes_max",
        "_frame_bytes_min",
        "_have",
        "_held_bytes",
        "_memory",
        "_memory_full",
        "_mute_timer",
        "_muted_until_s",
        "_need",
        "_pumping",
        "_read_paused",
        "_server",
        "_stops",
        "_stream",
        "_taken",
        "_transport",
        "_turn",
        "_turn_asked",
        "_uncut",
        "_uncut_ns",
        "_waiting",
        "_waiting_bytes",
        "active_ns",
        "client",
        "closing",
        "handler",
        "login",
        "on_lost",
        "peer_host",
        "peer_port",
        "pending",
        "principal",
    )

    def __init__(self, server: Server, entered_from: str = "") -> None:
        """`entered_from`: the address of a peer that the server has let in already, before its
        connection was encrypted.
        """
        self._server = server
        self._entered = entered_from != ""
        self.principal: Principal = NOBODY
        """Who the peer is; nobody until that is known."""
        self.handler: Handler = server.handler
        self.login: object = None
        """The state of a login by SASL, for the handler."""
        self.client: object = None  # what the peer has told of itself, for the handler
        self._memory = server.login_memory if server.asks_for_login else server.memory
        self._frame_bytes_min = server.frame_bytes_min
        self._frame_bytes_max = server.frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []  # the beginning of a frame that is still arriving
        self._have = 0  # bytes in _chunks
        self._taken = 0  # of the node's request memory, for the frame that is arriving
        self._need = 0  # bytes that it must have before there is something to do
        self._waiting: deque[tuple[memoryview, int]] = deque()
        self._waiting_bytes = 0
        self.pending: deque[Exchange] = deque()
        self._held_bytes = 0  # of the request that holds back all that came behind it
        self._pumping = False
        self._memory_full = False
        self._read_paused = False
        self._turn = 0  # large frames since others had theirs
        self._turn_asked = False  # the loop will call `_take_turn`
        self._uncut = b""  # frames that arrived at `_uncut_ns` and are not cut yet
        self._uncut_ns = 0
        self._stops = 0  # why no request starts: _UNREAD, _MUTED
        self._muted_until_s = 0.0  # in the loop's time
        self._mute_timer: asyncio.TimerHandle | None = None
        self._stream: AnswerStream | None = None  # made for the first answer with a region
        self.closing = False
        self.active_ns = 0
        """When there was traffic; 0 until the connection is made."""
        self.peer_host, self.peer_port = entered_from, 0
        self.on_lost: Callable[[], None] | None = None
        """Called when the connection has ended."""

    # -- the transport's callbacks -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if not self._entered:
            self.peer_host = peer[0] if peer else ""
        self.peer_port = peer[1] if peer else 0
        self.active_ns = monotonic_ns()
        if not self._server.admit(self, self._entered):
            self.closing = True  # the server hangs up, at once or a little later
            return
        principal = self._server.principal_of(self, transport)
        if principal is None:
            self.abort()
            return
        self.principal = principal
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._transport = None
        self._drop_arriving()
        self._drop_waiting()
        self._take_uncut()
        self._end_mute()
        if self._memory_full:
            self._memory_full = False
            self._memory.forget(self._memory_free)
        for exchange in self.pending:
            if exchange.on_abandoned is not None and not exchange.done:
                exchange.on_abandoned()
            exchange.answer = None
        self.pending.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._server.forget(self)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        if self.closing:
            self._regulate_reading()
            return
        self.active_ns = received_ns = monotonic_ns()
        if self._uncut:
            # A transport may deliver a little after it was paused.
            self._keep_uncut(self._take_uncut() + data, self._uncut_ns)
            return
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                self._maybe_receive_directly()
                return
            data = b"".join(self._chunks)
            self._drop_arriving()
        self._cut_frames(data, received_ns, received_ns)

    def eof_received(self) -> bool:
        """The peer sends no more; whether the transport stays open until `drain` closes it.

        Requests that wait behind another are served first, as in Kafka, for a peer may hang up
        without waiting for answers. If none waits, the running one is abandoned. An encrypted
        connection cannot be half open: it is lost.
        """
        if not self._waiting or self._server.tls is not None:
            return False
        self.closing = True
        return True

    def pause_writing(self) -> None:
        self._stops |= _UNREAD

    def resume_writing(self) -> None:
        self._stops &= ~_UNREAD
        self.touch()
        self.drain()

    def touch(self) -> None:
        """There was traffic: the connection is not idle."""
        self.active_ns = monotonic_ns()

    # -- framing -------------------------------------------------------------------------------

    def _cut_frames(self, data: bytes, received_ns: int, turn_ns: int) -> None:
        """Start or keep the requests in `data`; the turn of this connection began at `turn_ns`."""
        view = memoryview(data)
        position, end = 0, len(data)
        need = _LENGTH_SIZE
        while end - position >= _LENGTH_SIZE:
            (size,) = _LENGTH.unpack_from(data, position)
            if not self._frame_bytes_min <= size <= self._frame_bytes_max:
                self.refuse(
                    f"a frame of {size} bytes; allowed are {self._frame_bytes_min} to "
                    f"{self._frame_bytes_max} here ({self._limit_name()})"
                )
                return
            need = _LENGTH_SIZE + size
            if end - position < need:
                break
            if position and (
                len(self._waiting) >= WAITING_REQUESTS_MAX or monotonic_ns() - turn_ns > TURN_NS_MAX
            ):
                self._keep_uncut(data[position:], received_ns)
                return
            frame = view[position + _LENGTH_SIZE : position + need]
            if self.pending or self._waiting or self._stops:
                self._arrived(frame, received_ns)
            else:
                self.handler(self, frame, received_ns)
            if self.closing:
                return
            position += need
            need = _LENGTH_SIZE
        if position < end:
            self._keep_arriving(data[position:] if position else data, need)
        if self._waiting or self._memory_full:
            self._regulate_reading()

    def _keep_uncut(self, rest: bytes, received_ns: int) -> None:
        self._uncut, self._uncut_ns = rest, received_ns
        self._memory.take(len(rest))
        if len(self._waiting) < WAITING_REQUESTS_MAX:
            self._ask_for_turn()
        self._regulate_reading()

    def _take_uncut(self) -> bytes:
        rest, self._uncut = self._uncut, b""
        if rest:
            self._memory.give_back(len(rest))
        return rest

    def _ask_for_turn(self) -> None:
        """Go on when other connections have had theirs."""
        if not self._turn_asked:
            self._turn_asked = True
            self._server.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_asked = False
        if self._waiting:
            self._pump()
        if self._uncut and len(self._waiting) < WAITING_REQUESTS_MAX:
            self._cut_frames(self._take_uncut(), self._uncut_ns, monotonic_ns())
            self._regulate_reading()

    def _keep_arriving(self, rest: bytes, need: int) -> None:
        self._chunks.append(rest)
        self._have = len(rest)
        self._take_memory(need)
        self._maybe_receive_directly()

    def _take_memory(self, need: int) -> None:
        """Account for a frame that has begun to arrive, or wait until there is room for it."""
        self._need = need
        memory = self._memory
        if self._memory_full:
            return  # it waits already; a transport may deliver a little after it was paused
        if memory.full:
            self._memory_full = True
            memory.when_free(self._memory_free)
        else:
            self._taken = need
            memory.take(need)

    def _memory_free(self) -> None:
        self._memory_full = False
        if self._need:
            self._taken = self._need
            self._memory.take(self._need)
        self._regulate_reading()

    def _maybe_receive_directly(self) -> None:
        if self._have >= LARGE_FRAME_BYTES:
            beginning = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks.clear()
            self._switch_protocol(LargeFrames(self, beginning, self._need, self._frame_bytes_max))

    def large_frame_begun(self, size: int) -> None:
        self._take_memory(size)
        self._regulate_reading()

    def large_frame_arrived(self, frame: memoryview) -> None:
        self._drop_arriving()
        if not self.closing:
            self._arrived(frame, monotonic_ns())
            self._turn += 1
            if self._turn == LARGE_FRAMES_PER_TURN:
                self._server.loop.call_soon(self._next_turn)
            self._regulate_reading()

    def _next_turn(self) -> None:
        self._turn = 0
        self._regulate_reading()

    def large_frames_ended(self, rest: bytes) -> None:
        self._switch_protocol(cast("asyncio.Protocol", self))
        self.data_received(rest)

    def _switch_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        transport = self._transport
        if transport is not None and not self.closing:
            # The transport chooses its way of reading when reading begins.
            transport.pause_reading()
            transport.set_protocol(protocol)
            self._read_paused = True
            self._regulate_reading()

    def _drop_arriving(self) -> None:
        self._chunks.clear()
        self._need = 0
        if self._taken:
            taken, self._taken = self._taken, 0
            self._memory.give_back(taken)

    def _drop_waiting(self) -> None:
        if self._waiting:
            self._waiting.clear()
            given_back, self._waiting_bytes = self._waiting_bytes, 0
            self._memory.give_back(given_back)

    def _limit_name(self) -> str:
        full = self._frame_bytes_max == self._server.request_bytes_max
        return "socket.request.max.bytes" if full else "sasl.server.max.receive.size"

    def authenticated(self, principal: Principal, handler: Handler | None = None) -> None:
        """The peer has shown who it is: its requests may be as large as any, and go to `handler`
        from now on, if one is given.
        """
        self.principal = principal
        self._frame_bytes_min = REQUEST_BYTES_MIN
        self._frame_bytes_max = self._server.request_bytes_max
        before, self._memory = self._memory, self._server.memory
        if before is not self._memory:  # what it holds counts with the others' from now on
            held = self._taken + self._waiting_bytes + len(self._uncut)
            self._memory.take(held)
            if self._memory_full:
                before.forget(self._memory_free)
                self._memory_free()
            before.give_back(held)
        if handler is not None:
            self.handler = handler
            self.login = None

    # -- the order of requests -----------------------------------------------------------------

    def _arrived(self, frame: memoryview, received_ns: int) -> None:
        if not self._waiting and self._may_start(frame):
            self.handler(self, frame, received_ns)
        else:
            self._waiting.append((frame, received_ns))
            self._waiting_bytes += len(frame)
            self._memory.take(len(frame))
            if self.pending and self.pending[-1].on_followed is not None:
                self.pending[-1].on_followed()

    def _may_start(self, frame: memoryview) -> bool:
        if self._stops or self._held_bytes:
            return False
        if not self.pending:
            return True
        return (
            self.pending[0].api_key == 0
            and frame[:2] == _PRODUCE_KEY
            and len(self.pending) < UNANSWERED_PRODUCES_MAX
        )

    def hold(self, size: int) -> None:
        """The last request has still to do its local work, and its `size` bytes stay in memory:
        whatever came behind it waits for `release`, Produces too.
        """
        self._held_bytes = size
        self._memory.take(size)

    def release(self) -> None:
        """The request that was held up has done its local work."""
        held, self._held_bytes = self._held_bytes, 0
        self._memory.give_back(held)
        if self._waiting:
            self._pump()

    def drain(self) -> None:
        """Write every answer whose turn has come, then start what waited for it."""
        pending = self.pending
        answered = self._server.answered
        while pending and pending[0].done:
            exchange = pending[0]
            if not exchange.ready_ns:
                exchange.ready_ns = monotonic_ns()
            answer, transport = exchange.answer, self._transport
            if isinstance(answer, bytes) and transport is not None:
                transport.write(answer)
            elif not self._send(exchange):
                return
            pending.popleft()
            exchange.answer = None
            self.active_ns = exchange.sent_ns = monotonic_ns()
            answered(exchange)
            self._server.busy_poll.answered(exchange.sent_ns)
        if self._waiting:
            self._pump()
        elif self.closing and not pending and self._transport is not None:
            self._transport.close()

    def _send(self, exchange: Exchange) -> bool:
        """Whether all of the answer is with the transport or the kernel; if not, `drain` will be
        called again.
        """
        transport, answer = self._transport, exchange.answer
        if answer is None or transport is None:
            return True
        if isinstance(answer, list):
            if not has_region(answer):
                transport.writelines(cast("list[bytes]", answer))
                return True
            answer = exchange.answer = deque(answer)
        assert isinstance(answer, deque)  # plain bytes are written by `drain`
        if self._stream is None:
            self._stream = AnswerStream(self, transport, self._server.loop)
        try:
            return self._stream.send(answer)
        except (ConnectionError, TimeoutError):
            self.abort()  # the peer has gone
        except OSError as e:
            log.error(
                "an answer to %s cannot be sent from its file: %s", self.peer_host, e.strerror
            )
            self.abort()
        return False

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        turn_ns = monotonic_ns()
        try:
            while self._waiting and self._may_start(self._waiting[0][0]):
                if monotonic_ns() - turn_ns > TURN_NS_MAX:
                    self._ask_for_turn()
                    break
                frame, received_ns = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._memory.give_back(len(frame))
                self.handler(self, frame, received_ns)
        finally:
            self._pumping = False
        if self._uncut and len(self._waiting) < WAITING_REQUESTS_MAX:
            self._ask_for_turn()
        self._regulate_reading()

    # -- muting --------------------------------------------------------------------------------

    def mute(self, seconds: float) -> None:
        """Read nothing and start no request for so long; of several times the latest end counts.

        Call it before the answer is handed over, else what waits behind that starts first.
        """
        self.hold_up(seconds)
        self._regulate_reading()

    def hold_up(self, seconds: float) -> None:
        """`mute` for a connection that is being made, whose transport does not read yet: reading
        stops when the first request has arrived.
        """
        if self.closing:
            return
        loop = self._server.loop
        self._muted_until_s = max(self._muted_until_s, loop.time() + seconds)
        self._stops |= _MUTED
        if self._mute_timer is None:
            self._mute_timer = loop.call_later(seconds, self._mute_over)

    def _mute_over(self) -> None:
        loop = self._server.loop
        if loop.time() < self._muted_until_s:  # it was made longer meanwhile
            self._mute_timer = loop.call_at(self._muted_until_s, self._mute_over)
            return
        self._end_mute()
        self.touch()
        self._go_on()

    def _end_mute(self) -> None:
        self._stops &= ~_MUTED
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None

    def _go_on(self) -> None:
        if self._waiting:
            self._pump()
        else:
            self._regulate_reading()

    # -- flow and end --------------------------------------------------------------------------

    def _regulate_reading(self) -> None:
        """Read from the peer just as long as there is room for what it sends."""
        stop = (
            self.closing
            or self._turn >= LARGE_FRAMES_PER_TURN
            or self._memory_full
            or self._uncut != b""
            or len(self._waiting) >= WAITING_REQUESTS_MAX
            or self._waiting_bytes >= WAITING_BYTES_MAX
            or self._stops >= _MUTED
        )
        if stop == self._read_paused or self._transport is None:
            return
        self._read_paused = stop
        if stop:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def listener(self) -> str:
        """The name of the listener that the peer came in by."""
        return self._server.name

    @property
    def idle(self) -> bool:
        """Nothing of this connection is being worked on here; what is missing is up to the peer."""
        return self._stops < _MUTED and (not self.pending or self._stops != 0)

    def refuse(self, reason: str) -> None:
        """The peer broke the protocol: say so in the log and hang up."""
        self._server.refused(self, reason)
        self.abort()

    def abort(self) -> None:
        self.closing = True
        self._drop_waiting()
        self._take_uncut()
        self._end_mute()
        if self._transport is not None:
            self._transport.abort()

    def close_when_answered(self) -> None:
        """Read nothing more; hang up once the requests that have arrived are answered. Those of a
        muted connection need not wait any longer.
        """
        self.closing = True
        self._take_uncut()
        self._end_mute()
        self._go_on()
        if not self.pending and not self._waiting and self._transport is not None:
            self._transport.close()
