"""A network of machines in memory: TCP connections with delays, losses, cuts and resets.

A connection is two `Pipe`s, one in each direction. Within a pipe the bytes keep their order and
none is lost, as in TCP: a lost packet is a pause until it is sent again, a cut is a standstill
until it is healed. Across pipes every order is possible. A machine whose process is gone refuses
connections and resets those that were open; a machine without power says nothing until it is back.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from .loop import PROCESS, Process, SimLoop
from .trace import Trace

KERNEL_BUFFER_BYTES = 256 * 1024
CONNECT_GIVES_UP_S = 60.0
RETRANSMIT_S = 0.2
FIN, RESET = "fin", "reset"


@dataclass
class LinkState:
    """How one direction between two machines behaves now."""

    delay_s: float = 0.0003
    jitter_s: float = 0.0005
    loss: float = 0.0
    bytes_per_s: float = 1e9
    cut: bool = False


class Network:
    def __init__(self, loop: SimLoop, rng: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.default = LinkState()
        self.links: dict[tuple[str, str], LinkState] = {}
        self.listeners: dict[tuple[str, int], Listening] = {}
        self.dark: dict[str, None] = {}
        """Machines without power."""
        self.pipes: dict[Pipe, None] = {}
        self._numbers = 0

    # -- the state of links --------------------------------------------------------------------

    def link(self, source: str, target: str) -> LinkState:
        return self.links.get((source, target), self.default)

    def change(self, source: str, target: str, **how: Any) -> None:
        """Change how `source` reaches `target`; what stood still and may go on goes on."""
        state = self.links.get((source, target))
        if state is None:
            state = self.links[source, target] = LinkState(**vars(self.default))
        for name, value in how.items():
            setattr(state, name, value)
        self.kick()

    def heal(self) -> None:
        self.links.clear()
        self.kick()

    def blocked(self, source: str, target: str) -> bool:
        return source in self.dark or target in self.dark or self.link(source, target).cut

    def kick(self) -> None:
        for pipe in list(self.pipes):
            if pipe.stalled and not self.blocked(pipe.source, pipe.target):
                pipe.stalled = False
                pipe.schedule(self.loop.time() + self.rng.uniform(0.0, RETRANSMIT_S * 4))

    def transit_s(self, source: str, target: str, size: int) -> float:
        link, rng = self.link(source, target), self.rng
        delay = link.delay_s + rng.expovariate(1.0) * link.jitter_s + size / link.bytes_per_s
        if link.loss:
            again = RETRANSMIT_S
            while rng.random() < link.loss and again < 8 * RETRANSMIT_S:
                delay += again
                again *= 2
        return delay

    # -- connections ---------------------------------------------------------------------------

    async def connect(
        self, process: Process, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]:
        started, pause = self.loop.time(), 1.0
        source = process.machine
        while True:
            await asyncio.sleep(self.transit_s(source, host, 0))
            if not self.blocked(source, host) and not self.blocked(host, source):
                break
            if self.loop.time() - started > CONNECT_GIVES_UP_S:
                raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            await asyncio.sleep(pause)
            pause *= 2
        listening = self.listeners.get((host, port))
        if listening is None or listening.factory is None:
            self.trace.event(f"refused {source} {host}:{port}")
            await asyncio.sleep(self.transit_s(host, source, 0))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {host}:{port}")
        self._numbers += 1
        number = self._numbers
        self.trace.event(f"connect {number} {source} {host}:{port}")
        near = SimTransport(self, process, (source, 40_000 + number % 20_000), (host, port))
        far = SimTransport(self, listening.process, (host, port), near.local)
        near.out = far.inbound = Pipe(self, number, near, far)
        far.out = near.inbound = Pipe(self, number, far, near)
        self.loop.call_soon(far.accept, listening.factory, context=listening.process.context)
        await asyncio.sleep(self.transit_s(host, source, 0))
        protocol = factory()
        near.accept(lambda: protocol)
        return near, protocol

    def process_died(self, process: Process, *, silently: bool) -> None:
        """Free its addresses; its peers get resets, unless its machine cannot send them."""
        for address, listening in list(self.listeners.items()):
            if listening.process is process:
                del self.listeners[address]
        for pipe in list(self.pipes):
            if pipe.sender.process is process:
                if silently:
                    pipe.clear()
                pipe.end(RESET)
            elif pipe.reader.process is process:
                del self.pipes[pipe]

    def reset_all(self, machine: str) -> None:
        """Break every connection of a machine, as a firewall that forgot them would."""
        self.trace.say("network", f"connections of {machine} are reset")
        for pipe in list(self.pipes):
            if pipe.source == machine:
                pipe.end(RESET)
                pipe.reader.out.end(RESET)

    def powered(self, machine: str, on: bool) -> None:
        if on:
            self.dark.pop(machine, None)
            self.kick()
        else:
            self.dark[machine] = None

    def bind(self, host: str, port: int) -> Listening:
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listening = self.listeners[host, port] = Listening(self, PROCESS.get(), host, port)
        return listening


class Listening:
    """What a bound socket is here; serving once it has a factory."""

    def __init__(self, network: Network, process: Process, host: str, port: int) -> None:
        self.network = network
        self.process = process
        self.address = (host, port)
        self.factory: Callable[[], Any] | None = None

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def listen(self, factory: Callable[[], Any]) -> Listening:
        self.factory = factory
        return self

    def close(self) -> None:
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]


class Pipe:
    """One direction of a connection: what was written and has not been read yet."""

    def __init__(
        self, network: Network, number: int, sender: SimTransport, reader: SimTransport
    ) -> None:
        self.network = network
        self.number = number
        self.sender = sender
        self.reader = reader
        self.source = sender.process.machine
        self.target = reader.process.machine
        self.on_way: deque[tuple[float, bytes | str]] = deque()
        self.unread = 0
        self.stalled = False
        self.ended = False
        self._scheduled = False
        self._last = 0.0
        network.pipes[self] = None

    def put(self, data: bytes | str) -> None:
        size = len(data)
        when = self.network.loop.time() + self.network.transit_s(self.source, self.target, size)
        self._last = max(self._last, when)
        self.on_way.append((self._last, data))
        if isinstance(data, bytes):
            self.unread += size
        if not self._scheduled and not self.stalled:
            self.schedule(self.on_way[0][0])

    def end(self, how: str) -> None:
        if not self.ended:
            self.ended = True
            if how == RESET and self.network.rng.random() < 0.5:
                self.clear()
            self.put(how)

    def clear(self) -> None:
        """What is on its way is lost: only ever at the end of the connection."""
        self.on_way.clear()
        self.unread = 0

    def schedule(self, when: float) -> None:
        if not self._scheduled and self.on_way:
            self._scheduled = True
            self.network.loop.call_at(when, self._arrive, context=self.reader.process.context)

    def _arrive(self) -> None:
        self._scheduled = False
        now = self.network.loop.time()
        if self.network.blocked(self.source, self.target):
            self.stalled = True
            return
        while self.on_way and self.on_way[0][0] <= now:
            if self.reader.reading_paused and not isinstance(self.on_way[0][1], str):
                return  # resume_reading schedules it again
            data = self.on_way.popleft()[1]
            self._hand_over(data)
        if self.on_way:
            self.schedule(self.on_way[0][0])

    def _hand_over(self, data: bytes | str) -> None:
        if isinstance(data, str):
            self.network.trace.event(f"{data} {self.number} {self.source}>{self.target}")
            self.network.pipes.pop(self, None)
            self.reader.peer_ended(data)
            return
        self.network.trace.event(
            f"data {self.number} {self.source}>{self.target} {len(data)} {crc32(data)}"
        )
        self.unread -= len(data)
        self.reader.receive(data)
        self.sender.drained()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: Network, process: Process, local: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.local = local
        self.peer = peer
        self.out: Pipe
        self.inbound: Pipe
        self.reading_paused = False
        self._protocol: Any = None
        self._early: list[bytes | str] = []
        self._closing = False
        self._lost = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False

    def accept(self, factory: Callable[[], Any]) -> None:
        self._protocol = factory()
        self._protocol.connection_made(self)
        early, self._early = self._early, []
        for data in early:
            if isinstance(data, str):
                self.peer_ended(data)
            else:
                self.receive(data)

    # -- called by pipes -----------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        if self._protocol is None:
            self._early.append(data)
        elif self._closing or self._lost:
            return
        elif isinstance(self._protocol, asyncio.BufferedProtocol):
            self._receive_buffered(data)
        else:
            self._protocol.data_received(data)

    def _receive_buffered(self, data: bytes) -> None:
        while data and not self._closing:
            if not isinstance(self._protocol, asyncio.BufferedProtocol):
                self._protocol.data_received(data)
                return
            room: Any = self._protocol.get_buffer(len(data))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)

    def peer_ended(self, how: str) -> None:
        if self._protocol is None:
            self._early.append(how)
            return
        if self._lost:
            return
        if how == FIN and not self._closing and self._protocol.eof_received():
            return  # the protocol keeps its side open
        self._closing = True
        self.out.end(FIN)
        self._lose(ConnectionResetError(errno.ECONNRESET, "reset") if how == RESET else None)

    def drained(self) -> None:
        if self._writing_paused and self.get_write_buffer_size() <= self._low and not self._lost:
            self._writing_paused = False
            loop = self.network.loop
            loop.call_soon(self._resume_writing, context=self.process.context)

    def _resume_writing(self) -> None:
        if not self._lost:
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            loop = self.network.loop
            loop.call_soon(self._protocol.connection_lost, error, context=self.process.context)

    # -- called by protocols -------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._closing or self._lost or not data:
            return
        whole = bytes(data)
        rng = self.network.rng
        if len(whole) > 1 and rng.random() < 0.05:
            cut = rng.randrange(1, len(whole))
            self.out.put(whole[:cut])
            whole = whole[cut:]
        self.out.put(whole)
        self._maybe_pause()

    def _maybe_pause(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.out.end(FIN)
            self._lose(None)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self.out.end(RESET)
            self._lose(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False
        if not self.inbound.stalled:
            self.inbound.schedule(self.network.loop.time())

    def is_reading(self) -> bool:
        return not self.reading_paused

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer, "sockname": self.local}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._maybe_pause()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self.out.unread - KERNEL_BUFFER_BYTES)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.out.end(FIN)
