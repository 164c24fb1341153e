"""How long the work for one request may go on before others have their turn.

A handler that does something for each of many elements checks the clock now and then and lets
the loop run. Counting would not do: an element may be a glance, or a log that has to be opened.

Invariant: of all requests that are worked on in turns, one goes on in each turn of the loop, the
one that has waited longest: however many there are, nobody else waits longer for them. What the
node does for itself (`own`) goes on in every turn: clients cannot keep it waiting. Owned by the
event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic_ns
from typing import TypeVar
from weakref import WeakKeyDictionary

from penstock.base.steps import Steps

TURN_NS_MAX = 2_000_000
"""As long as it takes to start 64 small Produces, which is what one connection may have begun: so
those lose nothing.
"""

R = TypeVar("R")


class Turn:
    __slots__ = ("_began_ns", "_own")

    def __init__(self, *, own: bool = False) -> None:
        self._began_ns = monotonic_ns()
        self._own = own

    @property
    def is_over(self) -> bool:
        return monotonic_ns() - self._began_ns > TURN_NS_MAX

    async def next(self) -> None:
        """Let others have theirs; then this is a new one."""
        if self._own:
            await asyncio.sleep(0)
        else:
            await _queue().wait()
        self._began_ns = monotonic_ns()


async def in_turns(steps: Steps[R], *, own: bool = False) -> R:
    """What `steps` returns, with others in between."""
    turn = Turn(own=own)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: R = done.value
            return result
        if turn.is_over:
            await turn.next()


def begin(steps: Steps[None]) -> None:
    """Do `steps`: at once as far as one turn goes, and the rest with others in between.

    So what is done within a turn costs no task. Nobody waits for the end: `steps` says itself what
    has failed.
    """
    turn = Turn()
    for _ in steps:
        if turn.is_over:
            task = asyncio.get_running_loop().create_task(_go_on(steps, turn))
            _going_on.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(_going_on.discard)
            return


async def _go_on(steps: Steps[None], turn: Turn) -> None:
    await turn.next()
    await in_turns(steps)


_going_on: set[asyncio.Task[None]] = set()


class _Queue:
    """Those on one loop that wait for their next turn."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._wake_next)
        self._waiting.append(future)
        await future

    def _wake_next(self) -> None:
        """Wake one. It goes on in the next turn of the loop; the one behind it is woken then."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # else its task was cancelled
                future.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._wake_next)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = WeakKeyDictionary()


def _queue() -> _Queue:
    loop = asyncio.get_running_loop()
    queue = _queues.get(loop)
    if queue is None:
        queue = _queues[loop] = _Queue()
    return queue
