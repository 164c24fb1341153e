"""A partition by itself: real files, but no node, no socket and no clock that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.clock import SystemRng
from penstock.base.errors import ErrorCode, StorageError
from penstock.base.ids import TopicPartition
from penstock.config.log_config import LogConfig
from penstock.log.environment import LogEnvironment
from penstock.log.log import Batch
from penstock.log.manager import LogManager
from penstock.metadata import image as metadata
from penstock.observe.standard import TopicCounters
from penstock.partitions.batch_validation import BatchRules
from penstock.partitions.flusher import Flusher
from penstock.partitions.partition import Partition
from penstock.partitions.replica_environment import ReplicaEnvironment
from penstock.partitions.turns import Turns
from penstock.partitions.waiting import ACKS_ALL, ACKS_LEADER, CHANGED, MOVED
from penstock.wire.records import parse_header
from support.batches import batch

NODE, OTHER = 1, 2
TOPIC_ID = b"t" * 16


class Clock:
    """Stands still unless it is moved."""

    ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1_000


class Brokers:
    """All are there, under epoch 1."""

    def broker_epoch(self, broker_id: int) -> int | None:
        return 1

    def takes_part(self, broker_id: int) -> bool:
        return True


class Waiter:
    outlives_leadership = True

    def __init__(self) -> None:
        self.told: list[str] = []

    def waits(self) -> None:
        self.told.append("waits")

    def appended(self) -> None:
        self.told.append("appended")

    def failed(self, code: ErrorCode, message: str) -> None:
        self.told.append(code.name)


class Reader:
    read_committed = False

    def __init__(self) -> None:
        self.told: list[int] = []

    def moved(self, bytes_in: int, why: int) -> None:
        self.told.append(why)

    def left(self) -> None:
        self.told.append(-1)


class Alone:
    """A partition and what it works with."""

    def __init__(self, root: Path, *replicas: int) -> None:
        clock: Any = Clock()
        self.clock = clock
        self.refused: list[StorageError] = []
        self.logs = LogManager(
            str(root), lambda _: LogConfig(), LogEnvironment(clock=clock, rng=SystemRng())
        )
        self.turns = Turns()
        env = ReplicaEnvironment(
            NODE,
            Brokers(),
            clock,
            self.turns,
            Flusher(),
            lag_time_max_ms=lambda: 30_000,
            backoff_max_ms=lambda: 1_000,
            follower_reads=False,
            on_append_failed=lambda _, error: self.refused.append(error),
        )
        self.partition = Partition(
            "t",
            TOPIC_ID,
            0,
            self.logs.get_or_create(TopicPartition("t", 0), TOPIC_ID),
            registration=metadata.Partition(replicas, replicas, NODE, 0, 0),
            rules=BatchRules(LogConfig(), full=False),
            counters=TopicCounters(),
            env=env,
            high_watermark=0,
        )

    def stage(self, acks: int = ACKS_ALL) -> Waiter:
        waiter = Waiter()
        self.stage_for(waiter, acks)
        return waiter

    def stage_for(self, waiter: Waiter, acks: int = ACKS_ALL) -> None:
        data = batch([b"v"])
        self.partition.stage(Batch(parse_header(data), data), self.clock.now_ms(), acks, waiter)


@contextmanager
def alone(root: Path, *replicas: int) -> Iterator[Alone]:
    made = Alone(root, *replicas)
    try:
        yield made
    finally:
        made.turns.stop()
        made.logs.close()


async def end_of_turn() -> None:
    await asyncio.sleep(0)


def test_what_is_staged_in_a_turn_is_written_at_its_end(tmp_path: Path) -> None:
    async def test() -> None:
        with alone(tmp_path, NODE) as it:
            first, second = it.stage(), it.stage(ACKS_LEADER)
            assert it.partition.log.log_end_offset == 0
            await end_of_turn()
            assert first.told == second.told == ["appended"]
            assert it.partition.high_watermark == 2

    asyncio.run(test())


def test_what_the_leader_writes_is_committed_when_its_follower_has_it(tmp_path: Path) -> None:
    async def test() -> None:
        with alone(tmp_path, NODE, OTHER) as it:
            reader, follower = Reader(), Reader()
            it.partition.readers.add(reader, follower=False)
            it.partition.readers.add(follower, follower=True)
            waiter, quick = it.stage(), it.stage(ACKS_LEADER)
            await end_of_turn()
            assert (waiter.told, quick.told) == (["waits"], ["appended"])
            assert (reader.told, follower.told) == ([], [MOVED])
            it.partition.follower_fetched(OTHER, 2, 0, 1)
            assert waiter.told == ["waits", "appended"]
            assert reader.told == [MOVED]

    asyncio.run(test())


def test_a_change_of_the_log_finds_nothing_staged(tmp_path: Path) -> None:
    async def test() -> None:
        with alone(tmp_path, NODE) as it:
            waiter = it.stage()
            it.partition.log.roll()
            assert waiter.told == ["appended"]
            await end_of_turn()
            assert it.partition.log.log_end_offset == 1

    asyncio.run(test())


@pytest.mark.uncompiled
def test_each_of_those_whose_write_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        with alone(tmp_path, NODE) as it:
            producer, coordinator = it.stage(), it.stage()

            def refuse(*_: Any) -> None:
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(type(it.partition.log.segments.active), "append", refuse)
                await end_of_turn()
            assert producer.told == coordinator.told == ["KAFKA_STORAGE_ERROR"]
            assert len(it.refused) == 1
            it.clock.ms += 60_000  # the pause of a disk that has refused is over
            again = it.stage()
            await end_of_turn()
            assert again.told == ["appended"]

    asyncio.run(test())


def test_a_stopped_partition_sends_all_away(tmp_path: Path) -> None:
    async def test() -> None:
        with alone(tmp_path, NODE, OTHER) as it:
            reader = Reader()
            it.partition.readers.add(reader, follower=False)
            written = it.stage()
            await end_of_turn()
            staged = it.stage()
            it.partition.stop("a test says so")
            assert written.told == ["waits", "KAFKA_STORAGE_ERROR"]
            assert staged.told == ["KAFKA_STORAGE_ERROR"]
            assert reader.told == [CHANGED, -1]
            with pytest.raises(StorageError, match="a test says so"):
                it.stage()
            await end_of_turn()
            assert it.partition.log.log_end_offset == 1

    asyncio.run(test())


def test_what_an_acknowledgement_lets_in_is_written_before_a_leader_epoch_ends(
    tmp_path: Path,
) -> None:
    """A connection that is answered begins its next request at once."""

    async def test() -> None:
        with alone(tmp_path, NODE) as it:
            behind: list[Waiter] = []

            class Pipelined(Waiter):
                def appended(self) -> None:
                    super().appended()
                    if len(behind) < 3:
                        behind.append(Pipelined())
                        it.stage_for(behind[-1])

            first = Pipelined()
            it.stage_for(first)
            registration = it.partition.registration
            it.partition.leadership.follow(registration._replace(leader=OTHER, leader_epoch=1))
            assert first.told == ["appended"]
            assert [waiter.told for waiter in behind] == [["appended"]] * 3
            assert not it.partition.log.has_staged
            epochs = it.partition.log.epochs
            assert (epochs.latest_epoch, it.partition.log.log_end_offset) == (0, 4)

    asyncio.run(test())
