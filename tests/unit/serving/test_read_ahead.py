"""A follower that catches up is served from what was read for it ahead, and gets the same bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.log.slice import LogSlice
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from support import calls
from support.batches import batch, heads
from support.calls import RawTopic
from support.regions import grow_old
from unit.net.served import run
from unit.partitions.replica_rig import Stage, staged
from unit.serving.rig import Peer

BATCH_BYTES = 200_000
BATCHES = 12
PARTITIONS = 2
ROUNDS_MAX = 50


class Follower:
    """Broker 2, which fetches both partitions in one session and keeps what it gets."""

    def __init__(self, peer: Peer, topic: RawTopic) -> None:
        self._peer = peer
        self._topic = topic
        self._session = (0, 0)
        self.got: dict[int, bytes] = dict.fromkeys(range(PARTITIONS), b"")
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)

    async def fetch(self, named: dict[int, int]) -> set[int]:
        """One request that names these partitions; those that came with records."""
        session_id, epoch = self._session
        request: FetchRequest = calls.fetch_request(
            [(self._topic, named)], 17, session_id=session_id, session_epoch=epoch
        )
        request.replica_state = ReplicaState(replica_id=2, replica_epoch=2)
        answer: Any = await self._peer.call(request, 17)
        assert answer.error_code == 0
        self._session = (answer.session_id, epoch + 1)
        came = set()
        for of_topic in answer.responses:
            for data in of_topic.partitions:
                assert data.error_code == 0
                if data.records:
                    index = data.partition_index
                    self.got[index] += bytes(data.records)
                    self.offsets[index] = heads(data.records)[-1].last_offset + 1
                    came.add(index)
        return came


async def filled(stage: Stage) -> Follower:
    await stage.leave(2, fence=False)
    topic = stage.topic(1, 2, partitions=PARTITIONS)
    peer = await stage.actors[1].peer()
    for number in range(BATCHES):
        for index in range(PARTITIONS):
            records = batch([bytes([number]) * BATCH_BYTES])
            await peer.produce(topic, records, acks=1, partition=index)
    grow_old(stage.actors[1].partition(0).log)
    return Follower(peer, topic)


def stored(stage: Stage, index: int) -> bytes:
    log = stage.actors[1].partition(index).log
    found = log.read(0, 1 << 30, up_to_offset=log.log_end_offset)
    assert found is not None
    return bytes(found.read())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How often each place of a file was read, or known to be good."""
    counts: Counter[tuple[str, int]] = Counter()
    to_send = LogSlice.to_send

    def counted(self: LogSlice, *, nowait: bool = False) -> Any:
        counts[str(self.file), self.position] += 1
        return to_send(self, nowait=nowait)

    monkeypatch.setattr(LogSlice, "to_send", counted)
    return counts


def test_all_is_served_once_and_in_order(tmp_path: Path, reads: Counter[tuple[str, int]]) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            follower = await filled(stage)
            came, rounds = await follower.fetch(follower.offsets), 1
            while came and rounds < ROUNDS_MAX:
                came = await follower.fetch({i: follower.offsets[i] for i in sorted(came)})
                rounds += 1
            assert rounds > PARTITIONS  # more than one answer has room for
            # What was read ahead was what was asked for, but for the ends, which share an answer.
            assert sum(times - 1 for times in reads.values()) <= 1
            for index in range(PARTITIONS):
                assert follower.got[index] == stored(stage, index)

    run(test)


def test_a_follower_that_goes_back_gets_what_it_asks_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            follower = await filled(stage)
            await follower.fetch(follower.offsets)
            follower.got = dict.fromkeys(range(PARTITIONS), b"")
            await follower.fetch({0: 0, 1: 0})
            for index in range(PARTITIONS):
                assert stored(stage, index).startswith(follower.got[index])
            assert any(follower.got.values())

    run(test)


@pytest.mark.uncompiled  # `reads` is put in the place of a method
def test_what_was_read_under_an_earlier_leadership_is_thrown_away(
    tmp_path: Path, reads: Counter[tuple[str, int]]
) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            follower = await filled(stage)
            came = await follower.fetch(follower.offsets)
            for index in range(PARTITIONS):
                stage.elect(1, index=index)
            while came:
                came = await follower.fetch({i: follower.offsets[i] for i in sorted(came)})
            assert sum(times - 1 for times in reads.values()) == 2  # one more: read for nothing
            for index in range(PARTITIONS):
                assert follower.got[index] == stored(stage, index)

    run(test)
