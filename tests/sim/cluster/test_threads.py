"""Threads on the simulated loop."""

from __future__ import annotations

import asyncio
import random

import pytest

from .loop import SimLoop, Stuck
from .threads import SimExecutor, SimLock

SEEDS = range(20)


def loop(seed: int) -> SimLoop:
    return SimLoop(random.Random(seed))


def test_one_thread_keeps_its_order() -> None:
    for seed in SEEDS:
        made, done = loop(seed), list[int]()
        executor = SimExecutor(made, 1)

        async def work(
            made: SimLoop = made, executor: SimExecutor = executor, done: list[int] = done
        ) -> None:
            works = [made.run_in_executor(executor, done.append, i) for i in range(5)]
            await works[-1]
            assert all(w.done() for w in works)

        made.run_until_complete(work())
        assert done == [0, 1, 2, 3, 4]


def test_work_runs_at_once_or_later_and_is_over_later_still() -> None:
    ran_at_once = set()
    for seed in SEEDS:
        made, done = loop(seed), list[int]()

        async def work(made: SimLoop = made, done: list[int] = done) -> None:
            future = made.run_in_executor(None, done.append, 1)
            ran_at_once.add(bool(done))
            assert not future.done()
            await future
            assert done == [1]

        made.run_until_complete(work())
    assert ran_at_once == {True, False}


def test_who_waits_for_a_lock_has_the_work_done() -> None:
    for seed in SEEDS:
        made, done = loop(seed), list[int]()
        lock, executor = SimLock(made), SimExecutor(made, 1)
        lock.acquire()

        def last(done: list[int] = done, lock: SimLock = lock) -> None:
            done.append(2)
            lock.release()

        async def work(
            executor: SimExecutor = executor, done: list[int] = done, lock: SimLock = lock
        ) -> None:
            executor.submit(done.append, 1)
            executor.submit(last)
            with lock:
                assert done == [1, 2]
            await asyncio.sleep(1)
            assert done == [1, 2]

        made.run_until_complete(work())


def test_who_waits_for_nobody_is_stuck() -> None:
    lock = SimLock(loop(0))
    lock.acquire()
    with pytest.raises(Stuck, match="no thread will bring about"):
        lock.acquire()


def test_an_executor_that_ends_does_what_it_has() -> None:
    for seed in SEEDS:
        made, done = loop(seed), list[int]()
        executor = SimExecutor(made, 1)
        for i in range(3):
            executor.submit(done.append, i)
        executor.shutdown()
        assert done == [0, 1, 2]
        with pytest.raises(RuntimeError):
            executor.submit(done.append, 3)


def test_an_error_is_told_to_who_waits() -> None:
    for seed in SEEDS:
        made = loop(seed)

        async def work(made: SimLoop = made) -> None:
            with pytest.raises(ZeroDivisionError):
                await made.run_in_executor(None, lambda: 1 / 0)

        made.run_until_complete(work())
        with pytest.raises(ZeroDivisionError):
            SimExecutor(made).submit(lambda: 1 / 0).result()
