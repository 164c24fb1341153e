"""An asyncio event loop whose time is simulated and whose network and threads are not there.

Time stands still while callbacks run and jumps to the next timer when none is ready; a turn of the
loop costs `TURN_S`, so that a coroutine that spins makes time pass. Ready callbacks run in the
order in which they became ready. `create_connection` and `create_server` go to the simulated
network; the work of threads (`Work`) is a function that runs at some moment between its start and
its end, both chosen by the seed, while everything else goes on in between.

Every callback belongs to a `Process`, found by a context variable that tasks and timers inherit. A
dead process's callbacks are dropped, a paused one's are held back, which is all that a crash and
SIGSTOP are.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import events
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .network import Network

TURN_S = 5e-6
EVENTS_MAX = 30_000_000

PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("PROCESS")


class Process:
    """One run of a program on a machine, from its start to its end."""

    def __init__(self, name: str, machine: str) -> None:
        self.name = name
        self.machine = machine
        self.alive = True
        self.paused = False
        self.held: list[events.Handle] = []
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)
        self.remains: list[object] = []
        """What a dead process left: kept, so that no destructor runs code of it."""

    def __repr__(self) -> str:
        return self.name


class Work:
    """What another thread does: it runs once, as a whole, and is over some time after that."""

    __slots__ = ("executor", "func", "outcome", "process", "then")

    def __init__(self, executor: Any, func: Callable[[], Any], then: Callable[..., Any]) -> None:
        self.executor = executor
        self.func = func
        self.then = then
        """Called with the result, or None, and the error, or None, once it is over."""
        self.process: Process | None = PROCESS.get(None)
        self.outcome: tuple[Any, Exception | None] | None = None


class Stuck(Exception):
    """Nothing is ready, no timer is set and the run is not over; or it never ends."""


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self._rng = rng
        self._timers: list[tuple[float, int, Any]] = []
        """By time, and of the same time by the order in which they were set."""
        self._numbers = 0
        self._busy_until: dict[Any, float] = {}
        self._works: dict[Work, None] = {}
        """What threads were given and have not done yet, in that order."""
        self.waits = 0
        """How often somebody on the loop has waited for a thread."""
        self.working = False
        """Whether what runs now is the work of a thread."""
        self.network: Network | None = None
        self.ran = 0

    # -- time ----------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Any:
        timer: Any = events.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        timer._scheduled = True
        return timer

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        self._now += TURN_S
        if not ready:
            if not timers:
                raise Stuck("no callback is ready and no timer is set")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            self._run(ready.popleft())
        self.ran += 1
        if self.ran > EVENTS_MAX:
            raise Stuck(f"{EVENTS_MAX} turns and no end")

    def _run(self, handle: Any) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)
        if process is not None and (process.paused or not process.alive):
            (process.held if process.alive else process.remains).append(handle)
            return
        handle._run()

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Cancelled timers leave the heap when their time comes."""

    def resume(self, process: Process) -> None:
        process.paused = False
        held, process.held = process.held, []
        self._ready.extend(held)  # type: ignore[attr-defined]

    def kill(self, process: Process) -> None:
        """End a process where it stands: none of its code runs again, not even a destructor."""
        process.alive = False
        process.remains += process.held
        process.held.clear()
        for work in [work for work in self._works if work.process is process]:
            del self._works[work]
            process.remains.append(work)
        process.remains += asyncio.all_tasks(self)

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There is no other thread."""

    # -- what would be threads and sockets -----------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """The future is done when the work is over, in the order in which an executor of a single
        thread was given it.
        """
        future = self.create_future()
        self.begin_work(executor, partial(func, *args), partial(_deliver, future))
        return future

    def begin_work(self, executor: Any, func: Callable[[], Any], then: Callable[..., Any]) -> Work:
        """Have `func` run at once, or later, and `then` be called later still.

        All of it happens with threads: what the loop does meanwhile comes before the work, or after
        it and before its end is known.
        """
        if getattr(executor, "closed", False):
            raise RuntimeError("cannot schedule new futures after shutdown")
        work = Work(executor, func, then)
        rng, start = self._rng, self._now
        lasts = rng.uniform(0.0001, 0.002)
        if rng.random() < 0.02:
            lasts *= 20
        if getattr(executor, "_max_workers", 0) == 1:
            start = max(start, self._busy_until.get(executor, 0.0))
            self._busy_until[executor] = start + lasts
        self._works[work] = None
        runs = start + lasts * rng.choice((0.0, 0.0, rng.random(), 1.0))
        if runs == self._now:
            self._run_work(work)
        else:
            self.call_at(runs, self._run_work, work)
        self.call_at(start + lasts, self._work_is_over, work)
        return work

    def _run_work(self, work: Work) -> None:
        if work.outcome is not None:
            return
        self._works.pop(work)
        outer, self.working = self.working, True
        try:
            work.outcome = work.func(), None
        except Exception as e:
            work.outcome = None, e
        finally:
            self.working = outer

    def _work_is_over(self, work: Work) -> None:
        self._run_work(work)
        assert work.outcome is not None
        work.then(*work.outcome)

    def has_work(self, executor: Any) -> bool:
        """Whether it was given something that has not run yet."""
        return any(work.executor is executor for work in self._works)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Somebody on the loop waits for a thread: this process's work runs now, in its order.

        Other processes stand still meanwhile, which they would not; time does, too.
        """
        me = PROCESS.get(None)
        self.waits += 1
        for work in [work for work in self._works if work.process is me]:
            if condition():
                return
            self._run_work(work)
        if not condition():
            raise Stuck(f"{me} waits for {what}, which no thread will bring about")

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        assert self.network is not None
        return await self.network.connect(PROCESS.get(), protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Callable[[], Any], *_: Any, sock: Any = None, **__: Any
    ) -> Any:
        return sock.listen(protocol_factory)


def _deliver(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
