"""The child process: results, aborts, deaths."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.log.cleaner_client import CleanAborted, Cleaner, CleanFailed, LogUncleanable

T = TypeVar("T")
SLOW_BYTES_PER_SECOND = 20_000
"""So few that a cleaning of the logs below lasts for many seconds unless it is ended."""


def with_cleaner(test: Callable[[Cleaner], Awaitable[T]]) -> T:
    async def run() -> T:
        cleaner = Cleaner()
        try:
            return await asyncio.wait_for(test(cleaner), 30)
        finally:
            await cleaner.stop()

    return asyncio.run(run())


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not check():
            await asyncio.sleep(0.005)


def fill(log: Any) -> Any:
    for i in range(300):
        log.put((f"{i % 100}", "x" * 1_000))
    log.log.roll()
    return log


def is_under_way(log: Any) -> bool:
    return any(name.endswith(".cleaned") for name in os.listdir(log.dir))


def test_jobs_are_done_by_one_child_which_starts_with_the_first(make_log: Any) -> None:
    first, second = fill(make_log()), fill(make_log())

    async def test(cleaner: Cleaner) -> None:
        assert cleaner.pid is None
        results = await asyncio.gather(*(cleaner.clean(log.job()) for log in (first, second)))
        pid = cleaner.pid
        assert pid is not None
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(mine + 10, 19)
        for log, result in zip((first, second), results, strict=True):
            assert result.messages_after == 100
            log.swap(result)
            assert [offset for offset, _, _ in log.pairs()] == list(range(200, 300))
        first.put(("0", "new"))
        first.log.roll()
        first.swap(await cleaner.clean(first.job()))
        assert cleaner.pid == pid
        await cleaner.stop()
        assert cleaner.pid is None

    with_cleaner(test)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_child_leaves_the_log_untouched(make_log: Any, sig: signal.Signals) -> None:
    log = fill(make_log(segment_bytes=120_000))
    before = log.files()

    async def test(cleaner: Cleaner) -> None:
        # Fast enough to reach the writing of segments, too slow to come to the end of it.
        job = log.job(io_max_bytes_per_second=400_000)
        running = asyncio.create_task(cleaner.clean(job))
        await until(lambda: is_under_way(log))
        pid = cleaner.pid
        assert pid is not None
        os.kill(pid, sig)
        with pytest.raises(CleanFailed, match="died"):
            await running
        assert log.files() == before
        log.swap(await cleaner.clean(log.job()))
        assert cleaner.pid != pid
        assert len(log.pairs()) == 100

    with_cleaner(test)


def test_an_abort_ends_the_job_and_leaves_the_child(make_log: Any) -> None:
    log, other = fill(make_log()), fill(make_log())
    before = log.files()

    async def test(cleaner: Cleaner) -> None:
        running = asyncio.create_task(
            cleaner.clean(log.job(io_max_bytes_per_second=SLOW_BYTES_PER_SECOND))
        )
        waiting = asyncio.create_task(cleaner.clean(other.job()))
        await until(lambda: cleaner.pid)
        await cleaner.abort(str(other.dir))
        with pytest.raises(CleanAborted):
            await waiting
        await cleaner.abort(str(log.dir))
        assert log.files() == before
        with pytest.raises(CleanAborted):
            await running
        pid = cleaner.pid
        await cleaner.abort(str(log.dir))
        assert (await cleaner.clean(other.job())).messages_after == 100
        assert (await cleaner.clean(log.job())).messages_after == 100
        assert cleaner.pid == pid

    with_cleaner(test)


def test_a_cancelled_caller_takes_its_job_with_it(make_log: Any) -> None:
    log = fill(make_log())
    before = log.files()

    async def test(cleaner: Cleaner) -> None:
        running = asyncio.create_task(
            cleaner.clean(log.job(io_max_bytes_per_second=SLOW_BYTES_PER_SECOND))
        )
        await until(lambda: cleaner.pid)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cleaner.pid is None
        assert log.files() == before
        assert (await cleaner.clean(log.job())).messages_after == 100

    with_cleaner(test)


def test_stop_ends_what_runs(make_log: Any) -> None:
    log = fill(make_log())

    async def test(cleaner: Cleaner) -> None:
        job = log.job(io_max_bytes_per_second=SLOW_BYTES_PER_SECOND)
        running = asyncio.create_task(cleaner.clean(job))
        await until(lambda: cleaner.pid)
        pid = cleaner.pid
        assert pid is not None
        await cleaner.stop()
        with pytest.raises(CleanAborted):
            await running
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(CleanAborted):
            await cleaner.clean(job)

    with_cleaner(test)


def test_a_corrupt_log_is_reported_and_not_tried_again(make_log: Any) -> None:
    log, other = fill(make_log()), fill(make_log())
    path = Path(log.log.segments[0].file.path)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    before = log.files()

    async def test(cleaner: Cleaner) -> None:
        with pytest.raises(LogUncleanable, match="CRC"):
            await cleaner.clean(log.job())
        assert log.files() == before
        assert path.name in cleaner.uncleanable[str(log.dir)]
        path.write_bytes(good)
        with pytest.raises(LogUncleanable, match="not compacted any more"):
            await cleaner.clean(log.job())
        assert (await cleaner.clean(other.job())).messages_after == 100
        del cleaner.uncleanable[str(log.dir)]
        assert (await cleaner.clean(log.job())).messages_after == 100

    with_cleaner(test)


def test_a_missing_file_is_a_failure_that_may_pass(make_log: Any) -> None:
    log = fill(make_log())
    path = Path(log.log.segments[0].file.path)

    async def test(cleaner: Cleaner) -> None:
        good = path.read_bytes()
        path.unlink()
        with pytest.raises(CleanFailed, match="No such file"):
            await cleaner.clean(log.job())
        path.write_bytes(good)
        assert (await cleaner.clean(log.job())).messages_after == 100

    with_cleaner(test)


def test_the_throttle_slows_reading_and_writing_down(make_log: Any) -> None:
    log = fill(make_log())

    async def test(cleaner: Cleaner) -> float:
        await cleaner.clean(fill(make_log()).job())
        job = log.job(io_max_bytes_per_second=1_000_000)
        began = asyncio.get_running_loop().time()
        result = await cleaner.clean(job)
        moved = 2 * result.bytes_before + result.bytes_after
        assert moved > 700_000
        return (asyncio.get_running_loop().time() - began) / (moved / 1_000_000)

    assert 0.9 < with_cleaner(test) < 5


def test_the_child_ends_when_its_broker_is_gone(make_log: Any) -> None:
    log = fill(make_log())

    async def test(cleaner: Cleaner) -> None:
        running = asyncio.create_task(
            cleaner.clean(log.job(io_max_bytes_per_second=SLOW_BYTES_PER_SECOND))
        )
        await until(lambda: cleaner.pid)
        stdin = cleaner._process.stdin if cleaner._process else None
        assert stdin is not None
        stdin.close()
        with pytest.raises(CleanFailed):
            await running

    with_cleaner(test)
    assert not is_under_way(log)
