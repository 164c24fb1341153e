"""The persister with a coordinator that the test plays: what is asked again, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinating import share_persister
from penstock.coordinating.share_persister import ATTEMPTS_MAX, SharePersister
from penstock.coordinator.share_state.answers import answer, refuse, result
from penstock.share.types import ShareKey, StateBatch
from penstock.wire.schema import Message

HERE = 1
KEYS = [ShareKey("g", bytes(16), index) for index in range(150)]


class Coordinator:
    """Says the `codes` one after the other, then that all is well."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[Any] = []
        self.has_topic = True
        self.made = 0
        self.knows = True

    def node_of(self, key: ShareKey) -> int | None:
        return HERE if self.knows and self.has_topic else None

    async def make_topic(self) -> ErrorCode:
        self.made += 1
        await asyncio.sleep(0)
        self.has_topic = True
        return ErrorCode.NONE

    def serve(self, request: Any, version: int) -> Message | Awaitable[Message]:
        self.asked.append(request)
        if self.codes:
            return refuse(request, version, self.codes.pop(0))
        return answer(request, lambda _, named: result(type(request), named.partition))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_persister, "RETRY_S", 0.0001)
    monkeypatch.setattr(share_persister, "RETRY_S_MAX", 0.001)


def persister(coordinator: Coordinator) -> SharePersister:
    nobody: Any = None
    return SharePersister(HERE, nobody, nobody, coordinator)


async def written(made: SharePersister, keys: list[ShareKey]) -> list[ErrorCode]:
    found: list[ErrorCode] = []
    all_ = asyncio.Event()

    def done(code: ErrorCode, _why: str) -> None:
        found.append(code)
        if len(found) == len(keys):
            all_.set()

    for key in keys:
        made.write(key, 0, 0, -1, 0, [StateBatch(0, 0, 2, 1)], done)
    assert not found, "nobody is told before the call returns"
    await asyncio.wait_for(all_.wait(), 20)
    return found


@pytest.mark.parametrize("code", sorted(share_persister._PASSING))
def test_what_passes_is_asked_again(code: ErrorCode) -> None:
    async def run() -> None:
        coordinator = Coordinator(code, code)
        assert await written(persister(coordinator), KEYS[:1]) == [ErrorCode.NONE]
        assert len(coordinator.asked) == 3

    asyncio.run(run())


def test_it_is_asked_so_often_and_no_more() -> None:
    async def run() -> None:
        coordinator = Coordinator(*[ErrorCode.NOT_COORDINATOR] * (ATTEMPTS_MAX + 5))
        assert await written(persister(coordinator), KEYS[:1]) == [ErrorCode.NOT_COORDINATOR]
        assert len(coordinator.asked) == ATTEMPTS_MAX
        nowhere = Coordinator()
        nowhere.knows = False
        with pytest.raises(ApiError) as refusal:
            await persister(nowhere).read(KEYS[0], 0)
        assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(run())


def test_what_does_not_pass_is_told_at_once() -> None:
    async def run() -> None:
        coordinator = Coordinator(ErrorCode.FENCED_LEADER_EPOCH)
        made = persister(coordinator)
        assert await written(made, KEYS[:1]) == [ErrorCode.FENCED_LEADER_EPOCH]
        assert len(coordinator.asked) == 1

    asyncio.run(run())


def test_a_turn_is_few_requests_of_a_bounded_size() -> None:
    async def run() -> None:
        coordinator = Coordinator()
        assert set(await written(persister(coordinator), KEYS)) == {ErrorCode.NONE}
        sizes = [sum(len(t.partitions) for t in request.topics) for request in coordinator.asked]
        assert sizes == [share_persister.PARTITIONS_PER_REQUEST_MAX, 50]

    asyncio.run(run())


def test_the_topic_is_made_once() -> None:
    async def run() -> None:
        coordinator = Coordinator()
        coordinator.has_topic = False
        assert set(await written(persister(coordinator), KEYS)) == {ErrorCode.NONE}
        assert coordinator.made == 1

    asyncio.run(run())


def test_who_cannot_use_an_answer_spoils_no_others(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        made = persister(Coordinator())

        def broken(_code: ErrorCode, _why: str) -> None:
            raise RuntimeError("no use for it")

        made.write(KEYS[0], 0, 0, -1, 0, [], broken)
        assert await written(made, KEYS[1:3]) == [ErrorCode.NONE] * 2

    asyncio.run(run())
    assert "nobody could use it" in caplog.text
