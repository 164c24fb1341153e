"""What a leader says to followers and to consumers of a replicated partition."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.config.broker_cluster import RACK_AWARE_SELECTOR
from penstock.metadata.records import ConfigRecord
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from support import calls
from support.batches import batch, heads
from support.calls import RawTopic
from unit.net.served import run
from unit.partitions.replica_rig import Stage, staged
from unit.serving.rig import Peer, until, waiting_reads

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LONG_MS = 60_000


async def ask(
    peer: Peer,
    topic: RawTopic,
    offset: int,
    *,
    replica: tuple[int, int] | None = None,
    last_epoch: int = -1,
    log_start: int = 0,
    **how: Any,
) -> Any:
    """Fetch one partition, perhaps as the follower (id, broker epoch); the whole answer."""
    request: FetchRequest = calls.fetch_request([(topic, {0: offset})], 17, **how)
    request.topics[0].partitions[0].last_fetched_epoch = last_epoch
    request.topics[0].partitions[0].log_start_offset = log_start
    if replica is not None:
        request.replica_state = ReplicaState(replica_id=replica[0], replica_epoch=replica[1])
    return await peer.call(request, 17)


async def ask_one(*args: Any, **how: Any) -> Any:
    answer = await ask(*args, **how)
    assert answer.error_code == 0
    [of_topic] = answer.responses
    [of_partition] = of_topic.partitions
    return of_partition


async def with_a_stranger(stage: Stage) -> tuple[RawTopic, Peer]:
    """A topic that broker 1 leads and the test follows as broker 2."""
    await stage.leave(2, fence=False)
    topic = stage.topic(1, 2)
    peer = await stage.actors[1].peer()
    for _ in range(3):
        await peer.produce(topic, batch([b"v"]), acks=1)
    return topic, peer


def test_a_follower_reads_what_is_not_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic, peer = await with_a_stranger(stage)
            leader = stage.actors[1].partition()
            data = await ask_one(peer, topic, 0, replica=(2, 2))
            assert [h.base_offset for h in heads(data.records)] == [0, 1, 2]
            assert (data.high_watermark, leader.high_watermark) == (0, 0)
            assert not (await ask_one(peer, topic, 0)).records
            # To ask for an offset is to have what lies below it.
            data = await ask_one(peer, topic, 2, replica=(2, 2))
            assert (data.high_watermark, leader.high_watermark) == (2, 2)
            assert len(heads((await ask_one(peer, topic, 0)).records)) == 2

    run(test)


@pytest.mark.parametrize(
    ("replica", "epoch", "offset", "code"),
    [
        ((2, 2), 0, 0, ErrorCode.NONE),
        ((2, -1), 0, 0, ErrorCode.NONE),
        ((2, 9), 0, 0, ErrorCode.NONE),  # registered anew, and this leader has not heard of it
        ((2, 1), 0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # an earlier life of the broker
        ((3, 3), 0, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),  # no replica, as far as is known here
        ((2, 2), 1, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ((2, 2), 0, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_who_is_a_follower(
    tmp_path: Path, replica: tuple[int, int], epoch: int, offset: int, code: ErrorCode
) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic, peer = await with_a_stranger(stage)
            data = await ask_one(peer, topic, offset, replica=replica, current_leader_epoch=epoch)
            assert ErrorCode(data.error_code) == code
            known = stage.actors[1].partition().leader
            assert known is not None
            assert known.followers[2].end_offset == (-1 if code else 0)

    run(test)


def test_where_logs_part(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic, peer = await with_a_stranger(stage)
            stage.elect(1)
            stage.elect(1)
            how: dict[str, Any] = {"replica": (2, 2), "current_leader_epoch": 2}
            # Epoch 1 wrote nothing: epoch 0 ended where the log ends.
            data = await ask_one(peer, topic, 3, last_epoch=1, **how)
            assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)
            data = await ask_one(peer, topic, 3, last_epoch=0, **how)
            assert data.diverging_epoch.end_offset == -1
            await peer.produce(topic, acks=1)
            data = await ask_one(peer, topic, 4, last_epoch=0, **how)
            assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)
            assert not data.records
            leader = stage.actors[1].partition().leader
            assert leader is not None
            assert leader.followers[2].end_offset == 3  # one that parts has not moved on

    run(test)


def test_an_old_epoch_is_fenced_and_the_new_leader_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            await peer.produce(topic)
            waiting = asyncio.create_task(
                ask(peer, topic, 1, max_wait_ms=LONG_MS, current_leader_epoch=0)
            )
            await until(lambda: waiting_reads(stage.actors[1].partition()))
            stage.elect(2)
            answer = await waiting
            [data] = answer.responses[0].partitions
            assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)
            [node] = answer.node_endpoints
            assert (node.node_id, node.port) == (2, stage.actors[2].port)
            # A producer is told as well.
            answer = await peer.call(calls.produce_request(topic, batch([b"v"]), 12), 12)
            [refused] = answer.responses[0].partition_responses
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = refused.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (2, 1)
            assert [node.node_id for node in answer.node_endpoints] == [2]

    run(test)


def test_a_consumer_is_woken_by_the_commit(tmp_path: Path) -> None:
    """The follower's request commits, and nothing else happens afterwards."""

    async def test() -> None:
        async with staged(tmp_path, 1, 2, replica_fetch_wait_max_ms="20000") as stage:
            topic = stage.topic(1, 2)
            peer, reader = await stage.actors[1].peer(), await stage.actors[1].peer()
            await peer.produce(topic)
            for offset in range(1, 4):
                waiting = asyncio.create_task(ask_one(reader, topic, offset, max_wait_ms=LONG_MS))
                await until(lambda: stage.actors[1].partition().readers.consumers)
                await peer.produce(topic)
                async with asyncio.timeout(2):
                    assert len(heads((await waiting).records)) == 1

    run(test)


@pytest.mark.parametrize("min_bytes", [1, 150])
def test_a_consumer_that_comes_between_append_and_commit_is_woken(
    tmp_path: Path, min_bytes: int
) -> None:
    """Nothing comes in after its request: what was there becomes readable."""

    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            topic, peer = await with_a_stranger(stage)
            reader = await stage.actors[1].peer()
            waiting = asyncio.create_task(
                ask_one(reader, topic, 0, max_wait_ms=LONG_MS, min_bytes=min_bytes)
            )
            await until(lambda: waiting_reads(stage.actors[1].partition()))
            await ask_one(peer, topic, 3, replica=(2, 2))
            async with asyncio.timeout(2):
                assert len(heads((await waiting).records)) == 3

    run(test)


# -- reading from followers ------------------------------------------------------------------------


def test_a_consumer_is_sent_to_a_replica_in_its_rack(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, replica_selector_class=RACK_AWARE) as stage:
            for node_id, rack in ((1, "a"), (2, "b"), (3, "b")):
                await stage.enter(node_id, broker_rack=rack)
            topic = stage.topic(1, 2, 3)
            peer = await stage.actors[1].peer()
            for _ in range(3):
                assert (await peer.produce(topic)).error_code == 0
            leader = stage.actors[1].partition().leader
            assert leader is not None
            await until(lambda: {f.end_offset for f in leader.followers.values()} == {3})
            assert (await ask_one(peer, topic, 0, rack_id="a")).preferred_read_replica == -1
            assert (await ask_one(peer, topic, 0, rack_id="c")).preferred_read_replica == -1
            began = time.monotonic()
            data = await ask_one(peer, topic, 3, rack_id="b", max_wait_ms=LONG_MS)
            assert data.preferred_read_replica in (2, 3)
            assert time.monotonic() - began < LONG_MS / 4000
            assert (data.records, data.high_watermark) == (b"", 3)
            # A follower out of sync is nobody to read from.
            await stage.leave(3, fence=False)
            stage.change(isr=[1, 2])
            assert (await ask_one(peer, topic, 0, rack_id="b")).preferred_read_replica == 2
            stage.change(isr=[1])
            data = await ask_one(peer, topic, 0, rack_id="b")
            assert data.preferred_read_replica == -1
            assert len(heads(data.records)) == 3

    run(test)


def test_followers_serve_what_they_know_to_be_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with staged(tmp_path, 1, 2, replica_fetch_wait_max_ms="300") as stage:
            topic = stage.topic(1, 2)
            peer, reader = await stage.actors[1].peer(), await stage.actors[2].peer()
            await peer.produce(topic, batch([b"a"]))
            await until(lambda: stage.actors[2].partition().high_watermark == 1)
            assert len(heads((await ask_one(reader, topic, 0)).records)) == 1
            waiting = asyncio.create_task(ask_one(reader, topic, 1, max_wait_ms=LONG_MS))
            await until(lambda: waiting_reads(stage.actors[2].partition()))
            await peer.produce(topic, batch([b"b"]))
            assert len(heads((await waiting).records)) == 1
            data = await ask_one(reader, topic, 7)
            assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            # Old clients cannot know that they read from a follower.
            old = await reader.call(calls.fetch_request([(topic, {0: 0})], 10), 10)
            [data] = old.responses[0].partitions
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_where_consumers_read_from_followers_those_hear_of_commits_at_once(tmp_path: Path) -> None:
    """The leader would otherwise keep its followers waiting for ten minutes here."""
    settings = {
        "replica_selector_class": RACK_AWARE_SELECTOR,
        "replica_fetch_wait_max_ms": "600000",
        "replica_socket_timeout_ms": "700000",
    }

    async def test() -> None:
        async with staged(tmp_path, 1, 2, **settings) as stage:
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            for offset in range(3):
                await peer.produce(topic, batch([b"a"]))
                await until(
                    lambda end=offset + 1: stage.actors[2].partition().high_watermark == end
                )

    run(test)


# -- throttling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_catches_up_slowly_until_it_may_go_on(
    tmp_path: Path, side: str
) -> None:
    async def test() -> None:
        rate = {f"{side}_replication_throttled_rate": "100000"}
        async with staged(tmp_path, 1, 2, **rate) as stage:
            replicas: Any = {f"{side}_replication_throttled_replicas": "0:1,0:2"}
            topic = stage.topic(1, 2, **replicas)
            peer = await stage.actors[1].peer()
            await peer.produce(topic)
            await stage.leave(2)
            stage.change(isr=[1])
            record = batch([b"x" * 100_000])
            for _ in range(8):
                await peer.produce(topic, record)
            await stage.enter(2, replica_fetch_max_bytes="100000")
            follower = await until(lambda: stage.actors[2].opened())
            await until(lambda: follower.log.log_end_offset > 1)
            await asyncio.sleep(0.5)
            assert follower.log.log_end_offset < 7
            stage.publish(
                ConfigRecord(
                    resource_type=2,
                    resource_name="t",
                    name=f"{side}.replication.throttled.replicas",
                    value=None,
                )
            )
            await until(lambda: stage.isr() == (1, 2))
            assert follower.log.log_end_offset == 9
            # In sync, nothing is held back.
            began = time.monotonic()
            await peer.produce(topic, record)
            assert time.monotonic() - began < 1

    run(test)


# -- cost ------------------------------------------------------------------------------------------


def test_a_request_costs_by_what_has_happened(tmp_path: Path) -> None:
    """A session of many partitions looks only at those that changed."""

    async def test() -> None:
        async with staged(tmp_path, 1) as stage:
            count = 200
            topic = stage.topic(1, partitions=count)
            peer, producer = await stage.actors[1].peer(), await stage.actors[1].peer()
            offsets = dict.fromkeys(range(count), 0)
            full = calls.fetch_request([(topic, offsets)], 17, session_epoch=0, max_wait_ms=1)
            answer = await peer.call(full, 17)
            session_id = answer.session_id
            assert session_id
            counters = stage.actors[1].partition().counters

            async def next_round(epoch: int, **offsets: int) -> tuple[int, list[int]]:
                """How many partitions were looked at, and which were told of."""
                before = counters.fetch_requests
                named = [(topic, {int(k[1:]): v for k, v in offsets.items()})] if offsets else []
                answer = await peer.call(
                    calls.fetch_request(
                        named, 17, session_id=session_id, session_epoch=epoch, max_wait_ms=1
                    ),
                    17,
                )
                told = [p.partition_index for t in answer.responses for p in t.partitions]
                return counters.fetch_requests - before, told

            assert await next_round(1) == (0, [])
            await producer.produce(topic, partition=7)
            await producer.produce(topic, partition=9)
            assert await next_round(2) == (2, [7, 9])
            # Not taken yet, as far as the leader knows: it is sent again.
            assert await next_round(3) == (2, [7, 9])
            assert await next_round(4, p7=1) == (2, [9])
            assert await next_round(5, p9=1) == (1, [])
            assert await next_round(6) == (0, [])

    run(test)
