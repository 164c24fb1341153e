"""Brokers copy partitions from each other: commit, catch-up, fail-over, truncation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.log.checkpoints import read_checkpoint
from penstock.log.retention import delete_old_segments
from penstock.partitions.high_watermarks import REPLICATION_OFFSET_CHECKPOINT
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from support.batches import batch
from support.calls import RawTopic
from unit.net.served import run
from unit.partitions.replica_rig import Stage, staged
from unit.serving.rig import Peer, produce_request, until

LONG_MS = 60_000


def files(stage: Stage, index: int = 0) -> set[bytes]:
    """The bytes of the partition's segments, one entry if all replicas are equal."""
    found = set()
    for actor in stage.actors.values():
        partition = actor.opened(index)
        if partition is not None:
            paths = sorted(Path(partition.log.dir).glob("*.log"))
            found.add(b"".join(path.read_bytes() for path in paths))
    return found


def ends(stage: Stage) -> dict[int, int]:
    return {n: a.partition().log.log_end_offset for n, a in stage.actors.items()}


async def write(peer: Peer, topic: RawTopic, count: int = 1, **how: Any) -> list[int]:
    """Produce some records one by one; their offsets."""
    offsets = []
    for i in range(count):
        answer = await peer.produce(topic, batch([b"value %d" % i]), **how)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        offsets.append(answer.base_offset)
    return offsets


async def all_have(stage: Stage, end: int) -> None:
    await until(
        lambda: all(
            (p := a.opened()) is not None
            and p.log.log_end_offset == end
            and p.high_watermark == end
            for a in stage.actors.values()
        )
    )


# -- commit ----------------------------------------------------------------------------------------


def test_an_acknowledged_record_is_on_all_replicas(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3, min_insync_replicas="2")
            peer = await stage.actors[1].peer()
            for i in range(20):
                assert await write(peer, topic) == [i]
                assert set(ends(stage).values()) == {i + 1}
            assert len(files(stage)) == 1
            await all_have(stage, 20)
            assert stage.alterations == []

    run(test)


def test_a_partition_with_one_replica_needs_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(2)
            peer = await stage.actors[2].peer()
            assert await write(peer, topic, 3) == [0, 1, 2]
            assert stage.actors[2].partition().leader is None
            assert stage.actors[1].opened() is None

    run(test)


def test_a_follower_acknowledges_only_what_its_disk_has(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2, flush_messages="1")
            peer = await stage.actors[1].peer()
            await write(peer, topic)
            gate = asyncio.Event()
            flusher = stage.actors[2].broker.flusher
            real = flusher._round

            async def held() -> None:
                await gate.wait()
                await real()

            flusher._round = held  # type: ignore[method-assign]
            peer.send(produce_request(topic, None), 12)
            await until(lambda: ends(stage) == {1: 2, 2: 2})
            await until(lambda: stage.actors[1].partition().durable_offset == 2)
            assert await peer.silent()
            assert stage.actors[1].partition().high_watermark == 1
            gate.set()
            answer = await peer.receive()
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert stage.actors[2].partition().log.recovery_point == 2

    run(test)


def test_too_few_in_sync_refuse_writes_and_end_those_that_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2, min_insync_replicas="2")
            peer, other = await stage.actors[1].peer(), await stage.actors[1].peer()
            await write(peer, topic)
            await stage.leave(2)
            peer.send(produce_request(topic, None, timeout_ms=LONG_MS), 12)
            await until(lambda: stage.actors[1].partition().log.log_end_offset == 2)
            stage.change(isr=[1])
            answer = (await peer.receive()).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            assert (await other.produce(topic)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            # What is written otherwise is not committed, and so not read, either.
            assert (await other.produce(topic, acks=1)).error_code == 0
            assert stage.actors[1].partition().high_watermark == 1
            assert (await other.fetch(topic, 1)).records == b""
            await stage.enter(2)
            await until(lambda: stage.isr() == (1, 2))
            await all_have(stage, 3)
            assert await write(peer, topic) == [3]

    run(test)


# -- the in-sync set -------------------------------------------------------------------------------


def test_a_follower_that_lags_leaves_and_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3, replica_lag_time_max_ms="300") as stage:
            topic = stage.topic(1, 2, 3)
            peer = await stage.actors[1].peer()
            await write(peer, topic)
            await stage.leave(3, fence=False)
            # Nothing was written that it lacks: it stays.
            await asyncio.sleep(0.5)
            assert stage.isr() == (1, 2, 3)
            peer.send(produce_request(topic, None, timeout_ms=LONG_MS), 12)
            answer = (await peer.receive()).responses[0].partition_responses[0]
            assert answer.error_code == 0
            assert stage.isr() == (1, 2)
            assert stage.actors[1].isr_changes.shrinks_total == 1
            await stage.enter(3)
            await until(lambda: stage.isr() == (1, 2, 3))
            await all_have(stage, 2)
            assert stage.actors[1].isr_changes.expands_total == 1

    run(test)


def test_a_refused_change_is_asked_for_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic)
            await stage.leave(2)
            stage.change(isr=[1])
            await write(peer, topic)
            stage.refuse_isr_changes = True
            await stage.enter(2)
            changes = stage.actors[1].isr_changes
            await until(lambda: changes.failures_total > 0)
            assert stage.isr() == (1,)
            stage.refuse_isr_changes = False
            # The next fetch asks again.
            await until(lambda: stage.isr() == (1, 2))

    run(test)


# -- fail-over -------------------------------------------------------------------------------------


def test_writing_goes_on_with_another_leader(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3, min_insync_replicas="2")
            peer = await stage.actors[1].peer()
            await write(peer, topic, 5)
            await stage.leave(1, crash=True)
            stage.elect(2, isr=[2, 3])
            peer = await stage.actors[2].peer()
            assert await write(peer, topic, 5) == list(range(5, 10))
            await stage.enter(1)
            await until(lambda: stage.isr() == (2, 3, 1))
            await all_have(stage, 10)
            assert len(files(stage)) == 1
            assert stage.actors[1].partition().log.epochs.latest_epoch == 1

    run(test)


def test_what_only_the_old_leader_had_is_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 3)
            # The old leader hears of nothing, nobody fetches from it any more, it takes writes.
            stage.actors[1].hears = False
            stage.elect(2, isr=[2, 3])
            await write(peer, topic, 4, acks=1)
            waiting = await stage.actors[1].peer()
            waiting.send(produce_request(topic, None, timeout_ms=LONG_MS), 12)
            await until(lambda: stage.actors[1].partition().log.log_end_offset == 8)
            assert stage.actors[1].partition().high_watermark == 3
            other = await stage.actors[2].peer()
            assert await write(other, topic, 2) == [3, 4]
            stage.actors[1].listen_again()
            answer = (await waiting.receive()).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
            await until(lambda: stage.isr() == (2, 3, 1))
            await all_have(stage, 5)
            assert len(files(stage)) == 1

    run(test)


def test_a_new_leader_says_nothing_of_a_watermark_that_it_does_not_know(tmp_path: Path) -> None:
    async def test() -> None:
        from penstock.wire.messages.list_offsets import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        def latest(replica_id: int = -1) -> ListOffsetsRequest:
            wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
            return ListOffsetsRequest(
                replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[wanted])]
            )

        async with staged(tmp_path, 1, 2, replica_fetch_wait_max_ms="5000") as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 4)
            # The follower was told of all but the last record's commit.
            assert stage.actors[2].partition().high_watermark == 3
            await stage.leave(1, crash=True)
            stage.elect(2)
            other = await stage.actors[2].peer()
            [answer] = (await other.call(latest(), 7)).topics[0].partitions
            assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            [answer] = (await other.call(latest(replica_id=1), 7)).topics[0].partitions
            assert (answer.error_code, answer.offset) == (0, 4)
            assert (await other.fetch(topic, 3)).records == b""
            stage.change(isr=[2])
            [answer] = (await other.call(latest(), 7)).topics[0].partitions
            assert (answer.error_code, answer.offset) == (0, 4)

    run(test)


def test_a_producer_is_known_to_the_next_leader(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()

            def numbered(sequence: int) -> bytes:
                return batch(
                    [b"v%d" % sequence], producer_id=77, producer_epoch=0, base_sequence=sequence
                )

            for sequence in range(3):
                assert (await peer.produce(topic, numbered(sequence))).base_offset == sequence
            await stage.leave(1, crash=True)
            stage.elect(2, isr=[2])
            other = await stage.actors[2].peer()
            # The last one is sent again: it is there already.
            assert (await other.produce(topic, numbered(2))).base_offset == 2
            assert (await other.produce(topic, numbered(3))).base_offset == 3
            assert (
                await other.produce(topic, numbered(7))
            ).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(test)


# -- the ends of the log ---------------------------------------------------------------------------


async def delete_up_to(peer: Peer, offset: int) -> Any:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=3_000
    )
    [answer] = (await peer.call(request, 2)).topics[0].partitions
    return answer


def test_deleted_records_are_deleted_everywhere(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 6)
            answer = await delete_up_to(peer, 4)
            assert (answer.error_code, answer.low_watermark) == (0, 4)
            for actor in stage.actors.values():
                assert actor.partition().log.log_start_offset == 4

    run(test)


def test_a_follower_that_was_away_too_long_begins_anew(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 3)
            await stage.leave(2)
            stage.change(isr=[1])
            await write(peer, topic, 6)
            leader = stage.actors[1].partition()
            leader.log.roll()
            await write(peer, topic, 2)
            leader.log.delete_records(9)
            delete_old_segments(leader.log, 0)
            await stage.enter(2)
            await until(lambda: stage.isr() == (1, 2))
            await all_have(stage, 11)
            assert stage.actors[2].partition().log.log_start_offset == 9

    run(test)


def test_a_log_that_begins_within_a_batch_is_copied(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1)
            peer = await stage.actors[1].peer()
            await peer.produce(topic, batch([b"a", b"b", b"c", b"d"]))
            await delete_up_to(peer, 2)
            stage.change(replicas=[1, 2], adding_replicas=[2])
            await until(lambda: stage.isr() == (1, 2))
            assert stage.actors[2].partition().log.log_start_offset == 2
            assert len(files(stage)) == 1

    run(test)


def test_high_watermarks_are_written_down(tmp_path: Path) -> None:
    async def test() -> None:
        interval = {"replica_high_watermark_checkpoint_interval_ms": "50"}
        async with staged(tmp_path, 1, 2, **interval) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 3)
            paths = [tmp_path / f"node-{n}" / REPLICATION_OFFSET_CHECKPOINT for n in (1, 2)]
            await until(
                lambda: all(p.exists() and read_checkpoint(str(p)) == {("t", 0): 3} for p in paths)
            )
            await stage.leave(2)
            stage.actors[1].hears = False
            await stage.enter(2)
            partition = await until(lambda: stage.actors[2].opened())
            # A follower waits for its leader's word; a leader goes by what it remembers.
            assert (partition.high_watermark, partition.known_watermark) == (0, 3)
            stage.elect(2, isr=[2])
            assert partition.high_watermark == 3

    run(test)


# -- replicas that come and go ---------------------------------------------------------------------


def test_a_replica_is_added_and_one_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 3)
            folder = Path(stage.actors[2].partition().log.dir)
            stage.change(replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2])
            await until(lambda: stage.isr() == (1, 2, 3))
            stage.change(replicas=[1, 3], isr=[1, 3], adding_replicas=[], removing_replicas=[])
            assert stage.actors[2].opened() is None
            assert not folder.exists()
            assert await write(peer, topic) == [3]
            assert stage.actors[3].partition().log.log_end_offset == 4

    run(test)


def test_what_was_moved_away_meanwhile_is_no_longer_here(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 3)
            folder = Path(stage.actors[2].partition().log.dir)
            await stage.leave(2)
            stage.change(replicas=[1, 3], isr=[1])
            assert folder.exists()
            await stage.enter(2)
            assert not folder.exists()
            await until(lambda: stage.isr() == (1, 3))

    run(test)


def test_many_partitions_and_leaders_everywhere(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3, partitions=30)
            for index in range(30):
                stage.elect(1 + index % 3, index=index)
            peers = {n: await a.peer() for n, a in stage.actors.items()}
            for index in range(30):
                answer = await peers[1 + index % 3].produce(topic, partition=index)
                assert answer.error_code == 0
            await until(lambda: all(len(files(stage, index)) == 1 for index in range(30)))

    run(test)


# -- the fetchers ----------------------------------------------------------------------------------


def test_a_new_partition_does_not_wait_for_a_long_poll(tmp_path: Path) -> None:
    """The leader keeps a request waiting; a partition that comes to it is fetched at once."""

    async def test() -> None:
        async with staged(tmp_path, 1, 2, replica_fetch_wait_max_ms="20000") as stage:
            topic = stage.topic(1, 2, partitions=3)
            peer = await stage.actors[1].peer()
            assert (await peer.produce(topic)).error_code == 0
            for index in (1, 2):
                stage.elect(2, index=index)
                stage.elect(1, index=index)
                # Acknowledged by the follower: it takes as long as a fetch takes.
                async with asyncio.timeout(2):
                    assert (await peer.produce(topic, partition=index)).error_code == 0

    run(test)


def test_without_sessions_all_is_named_each_time(tmp_path: Path) -> None:
    async def test() -> None:
        none = {"max_incremental_fetch_session_cache_slots": "0"}
        async with staged(tmp_path, 1, 2, **none) as stage:
            topic = stage.topic(1, 2, partitions=3)
            peer = await stage.actors[1].peer()
            for index in (0, 1, 2, 0):
                assert (await peer.produce(topic, partition=index)).error_code == 0
            assert len(stage.actors[1].broker.fetch_sessions) == 0

    run(test)


def test_a_leader_that_forgets_the_session_is_asked_anew(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            assert await write(peer, topic, 2) == [0, 1]
            sessions = stage.actors[1].broker.fetch_sessions
            [session] = sessions._sessions.values()
            sessions._close(session)
            assert await write(peer, topic, 2) == [2, 3]
            assert len(sessions) == 1

    run(test)


def test_a_follower_has_one_session(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            for at in range(3):
                assert await write(peer, topic) == [at]
                await stage.leave(2)
                await stage.enter(2)
                await until(lambda: stage.isr() == (1, 2))
            assert await write(peer, topic) == [3]
            assert len(stage.actors[1].broker.fetch_sessions) == 1

    run(test)
