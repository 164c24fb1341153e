"""Threads, executors and locks as Penstock's modules see them, on the simulated loop.

There is one thread. An executor hands what it is given to the loop as `Work`; who waits for it (for
a lock that the other thread holds, for a result, for the end of an executor) has it run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

from .loop import SimLoop


class SimFuture(Future[Any]):
    """What `submit` gives: done as soon as the work has run, as with a thread."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__()
        self._sim_loop = loop

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._sim_loop.wait_for(self.done, "a result")
        return super().result(0)

    def run(self, func: Callable[[], Any]) -> None:
        try:
            result = func()
        except Exception as e:
            self.set_exception(e)
        else:
            self.set_result(result)


class SimExecutor:
    """A `ThreadPoolExecutor`."""

    def __init__(
        self, loop: SimLoop, max_workers: int | None = None, thread_name_prefix: str = ""
    ) -> None:
        self._loop = loop
        self._max_workers = max_workers or 8
        self.name = thread_name_prefix
        self.closed = False

    def submit(self, func: Callable[..., Any], /, *args: Any, **more: Any) -> SimFuture:
        future = SimFuture(self._loop)
        self._loop.begin_work(self, partial(future.run, partial(func, *args, **more)), _nothing)
        return future

    def map(self, func: Callable[..., Any], *iterables: Any) -> Iterator[Any]:
        futures = [self.submit(func, *args) for args in zip(*iterables, strict=False)]
        return iter([future.result() for future in futures])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        assert not cancel_futures, "what was handed over is not taken back here"
        self.closed = True
        if wait and self._loop.has_work(self):
            self._loop.wait_for(lambda: not self._loop.has_work(self), "an executor's end")

    def __enter__(self) -> SimExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class SimLock:
    """A `Lock`: who finds it taken waits for the thread that has it."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._taken = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._taken:
            if not blocking:
                return False
            self._loop.wait_for(lambda: not self._taken, "a lock")
        self._taken = True
        return True

    def release(self) -> None:
        assert self._taken, "release of a lock that nobody has"
        self._taken = False

    def locked(self) -> bool:
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _nothing(*_: object) -> None:
    return
