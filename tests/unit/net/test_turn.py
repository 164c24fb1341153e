"""Work in turns: however much of it there is, one piece goes on in each turn of the loop."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.steps import Steps
from penstock.net import turn
from penstock.net.turn import in_turns
from unit.net.served import run


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", -1)


class Loop:
    """Counts the turns of the loop, and what was done in each."""

    def __init__(self) -> None:
        self.turns = 0
        self.done: list[int] = []
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1

    def steps(self, count: int) -> Steps[int]:
        for _ in range(count):
            self.done.append(self.turns)
            yield
        return count


def test_one_goes_on_in_each_turn_of_the_loop() -> None:
    async def test() -> None:
        loop = Loop()
        work = [asyncio.create_task(in_turns(loop.steps(20))) for _ in range(10)]
        assert await asyncio.gather(*work) == [20] * 10
        later = [at for at in loop.done if at > loop.done[0]]
        assert len(later) == 190
        assert max(later.count(at) for at in later) == 1

    run(test)


def test_all_get_on() -> None:
    async def test() -> None:
        loop = Loop()
        long, short = loop.steps(1_000), loop.steps(10)
        task = asyncio.create_task(in_turns(long))
        assert await in_turns(short) == 10
        assert not task.done()
        assert await task == 1_000

    run(test)


def test_one_that_is_cancelled_holds_nobody_up() -> None:
    async def test() -> None:
        loop = Loop()
        gone = [asyncio.create_task(in_turns(loop.steps(100))) for _ in range(5)]
        stays = asyncio.create_task(in_turns(loop.steps(100)))
        while len(loop.done) < 30:
            await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        assert await stays == 100
        assert all(task.cancelled() for task in gone)
        assert await in_turns(loop.steps(3)) == 3

    run(test)


def test_what_fails_in_a_step_is_told() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("in the second step")

    async def test() -> None:
        with pytest.raises(ValueError, match="in the second step"):
            await in_turns(failing())

    run(test)


def test_the_nodes_own_work_does_not_wait_for_requests() -> None:
    async def test() -> None:
        loop = Loop()
        requests = [asyncio.create_task(in_turns(loop.steps(1_000))) for _ in range(50)]
        began = loop.turns
        assert await in_turns(loop.steps(100), own=True) == 100
        assert loop.turns - began < 2 * 100
        assert not any(task.done() for task in requests)

    run(test)
