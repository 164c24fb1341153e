"""What a change of leadership leaves behind: late writes, epochs without records, old progress."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.base.errors import ErrorCode
from penstock.log.log import Batch
from penstock.partitions.waiting import ACKS_ALL
from penstock.replica.follower import Append
from penstock.serving.read_session import FetchPartition, FetchSession
from penstock.wire.records import parse_header
from support.batches import batch
from unit.net.served import run
from unit.partitions.replica_rig import staged
from unit.partitions.test_replication import all_have, ends, files, write
from unit.serving.rig import until


def test_what_is_not_on_disk_is_acknowledged_to_no_other_leader_either(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3, flush_messages="1")
            peer = await stage.actors[1].peer()
            await write(peer, topic)
            gate = asyncio.Event()
            flusher = stage.actors[3].broker.flusher
            real = flusher._round

            async def held() -> None:
                await gate.wait()
                await real()

            flusher._round = held  # type: ignore[method-assign]
            await write(peer, topic, acks=1)
            await until(lambda: set(ends(stage).values()) == {2})
            stage.elect(2)
            leader = stage.actors[2].partition().leader
            assert leader is not None
            await until(lambda: leader.followers[1].end_offset == 2)
            assert leader.followers[3].end_offset == -1
            # What was cut off is waited for no longer.
            stage.actors[3].partition().truncate_to(1)
            await until(lambda: leader.followers[3].end_offset == 1)
            gate.set()
            await all_have(stage, 2)

    run(test)


def test_what_others_fetched_counts_no_more_when_another_led_in_between(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, 3) as stage:
            topic = stage.topic(1, 2, 3)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 3)
            await all_have(stage, 3)
            first = stage.actors[1]
            first.hears = False
            stage.elect(2)
            stage.elect(1)
            first.listen_again()
            leader = first.partition().leader
            assert leader is not None
            assert {f.end_offset for f in leader.followers.values()} == {-1}
            # Elected again without another in between, it knows what they have.
            await until(lambda: {f.end_offset for f in leader.followers.values()} == {3})
            stage.elect(1)
            assert first.partition().leader is leader
            assert {f.end_offset for f in leader.followers.values()} == {3}

    run(test)


class Waiter:
    outlives_leadership = True

    def __init__(self) -> None:
        self.heard: list[str] = []

    def waits(self) -> None:
        self.heard.append("waits")

    def appended(self) -> None:
        self.heard.append("done")

    def failed(self, code: ErrorCode, message: str) -> None:
        self.heard.append(code.name)


def test_what_was_written_late_is_not_acknowledged_for_anothers_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            await write(await stage.actors[1].peer(), topic, 2)
            await all_have(stage, 2)
            old = stage.actors[1].partition()
            cut, dropped = Waiter(), Waiter()
            for waiter in (dropped, cut):  # staged, and not yet written when the leadership ends
                sent = batch([b"late"])
                now_ms = stage.actors[1].broker.clock.now_ms()
                old.stage(Batch(parse_header(sent), sent), now_ms, ACKS_ALL, waiter)
            stage.elect(2)
            assert cut.heard == dropped.heard == ["waits"]
            old.truncate_to(3)
            assert (cut.heard, dropped.heard) == (["waits", "NOT_LEADER_OR_FOLLOWER"], ["waits"])
            old.start_anew(5)
            assert dropped.heard == ["waits", "NOT_LEADER_OR_FOLLOWER"]

    run(test)


def test_a_leader_that_appended_nothing_follows_the_next_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peers = {n: await actor.peer() for n, actor in stage.actors.items()}
            sent = batch([b"v"], producer_id=77, producer_epoch=0, base_sequence=0)
            assert (await peers[1].produce(topic, sent)).base_offset == 0
            await all_have(stage, 1)
            stage.elect(2)
            # What was sent again is there already: the leader's epoch has no record.
            assert (await peers[2].produce(topic, sent)).base_offset == 0
            stage.elect(1)
            await write(peers[1], topic, acks=1)
            await all_have(stage, 2)
            assert len(files(stage)) == 1

    run(test)


def test_what_an_old_leader_wrote_late_is_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await write(peer, topic, 2)
            await all_have(stage, 2)
            stage.elect(2)
            stage.elect(1)
            await all_have(stage, 2)
            fetcher = stage.actors[2].broker.replication._fetchers[1]  # type: ignore[union-attr]
            await until(lambda: fetcher._waits)
            late = batch([b"late"])
            log = stage.actors[2].partition().log
            log.append([Batch(parse_header(late), late)], 1, 0)
            await write(peer, topic, acks=1)
            await all_have(stage, 3)
            assert len(files(stage)) == 1

    run(test)


def test_what_is_committed_again_after_a_cut_is_told_to_readers_of_committed_data(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            await write(await stage.actors[1].peer(), topic, 3)
            await all_have(stage, 3)
            leader, follower = (actor.partition() for actor in stage.actors.values())
            found = leader.log.read(1, 1 << 20, up_to_offset=3)
            assert found is not None
            again, step = memoryview(found.read()), Append(3, 0)
            follower.replicate(None, step)
            follower.truncate_to(1)
            session = FetchSession(1, by_topic_id=True)
            session.set_visibility((True, ""))
            reader = FetchPartition(topic.id, 0, 1, 1_000, -1)
            session.update([reader], [])
            session.dirty.clear()
            reader.attach(follower)
            follower.replicate(again, step)
            assert follower.last_stable_offset == 3
            assert reader in session.dirty

    run(test)
