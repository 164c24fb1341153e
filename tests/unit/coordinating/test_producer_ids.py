"""Producer ids: blocks from the controller, and none given twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinating.producer_ids import ProducerIdManager
from unit.controlling.test_quorum_driver import Metadata
from unit.net.served import run
from unit.serving.rig import running


def test_no_producer_id_is_given_twice_over_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        given: list[int] = []
        for round_number in range(3):
            metadata = await Metadata(tmp_path).begin()

            ids = ProducerIdManager(metadata.ids)
            # Enough at once to use up a block in one of the rounds, and so many that all wait.
            given += await asyncio.gather(*(ids.next() for _ in range(600 + 600 * round_number)))
            if round_number % 2:
                metadata.stop()
            else:
                metadata.crash()
        assert len(given) == len(set(given)) == 600 + 1200 + 1800
        assert min(given) >= 0

    run(test)


def test_a_block_that_is_not_granted_is_asked_for_again() -> None:
    async def test() -> None:
        answers: list[range | ApiError] = [ApiError(ErrorCode.KAFKA_STORAGE_ERROR), range(5, 7)]

        async def block() -> range:
            await asyncio.sleep(0)
            answer = answers.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            return answer

        ids = ProducerIdManager(block)
        with pytest.raises(ApiError):
            await ids.next()
        assert [await ids.next(), await ids.next()] == [5, 6]

    run(test)


def test_ids_are_given_in_the_node_as_by_the_manager(tmp_path: Path) -> None:
    async def test() -> None:
        seen: set[int] = set()
        for _ in range(2):
            async with running(tmp_path) as rig:
                for _ in range(3):
                    seen.add(await rig.broker.producer_ids.next())
        assert len(seen) == 6

    run(test)
