"""ShareFetch and ShareAcknowledge on a node: sessions, records, acknowledgements, waiting."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.log.log import Log
from penstock.metadata.image import ResourceType
from penstock.share.types import RecordState
from support.batches import batch
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until
from unit.serving.share_rig import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    SETTINGS,
    ShareMember,
    acquired,
    begin_group,
    partitions_of,
    persisted,
)

LONG_MS = 60_000


async def published(peer: Peer, topic: RawTopic, *sizes: int, partition: int = 0) -> None:
    """Batches with so many records each."""
    for size in sizes:
        records = batch([b"v%d" % number for number in range(size)])
        assert (await peer.produce(topic, records, partition=partition)).error_code == 0


async def all_loaded(rig: Rig, count: int) -> None:
    partitions = rig.broker.share.partitions
    await until(lambda: [driver.is_active for driver in partitions] == [True] * count)


async def member_of(rig: Rig, topic: RawTopic, name: str = "member") -> ShareMember:
    return ShareMember(await rig.peer(), topic, name)


def test_records_are_acquired_and_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            await published(member.peer, topic, 3, 2)
            answer = await member.fetch()
            data = partitions_of(answer)[0]
            assert acquired(answer) == [(0, 4, 1)]
            assert data.records
            assert answer.acquisition_lock_timeout_ms == 30_000
            assert await member.said((0, 1, ACCEPT), (2, 4, [REJECT, RELEASE, ACCEPT])) == 0
            assert await member.taken() == [(3, 3, 2)]
            assert await member.said((3, 3, ACCEPT)) == 0
            start, batches = await persisted(rig, topic)
            assert start == 3, "it was so when the last acknowledgement was written"
            assert [(first, last, state) for first, last, state, _ in batches] == [
                (3, 3, RecordState.ACKNOWLEDGED),
                (4, 4, RecordState.ACKNOWLEDGED),
            ]

    run(test)


def test_acknowledgements_come_with_the_next_fetch(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic(partitions=2)
            await begin_group(rig, topic, (0, 1))
            member = await member_of(rig, topic)
            await published(member.peer, topic, 4)
            assert acquired(await member.fetch((0, 1))) == [(0, 3, 1)]
            acks = {0: [(0, 2, RELEASE)], 1: [(7, 9, ACCEPT)]}
            answer = await member.fetch((), acks)
            found = partitions_of(answer)
            assert found[0].acknowledge_error_code == 0
            assert found[1].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
            assert found[1].error_code == 0
            assert acquired(answer) == [(0, 2, 2)], "what is free again comes at once"

    run(test)


def test_the_sessions_rules(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            code = ErrorCode.SHARE_SESSION_NOT_FOUND
            assert (await member.fetch(share_session_epoch=3)).error_code == code
            assert (await member.fetch(share_session_epoch=-1)).error_code == code
            assert (await member.acknowledge(share_session_epoch=3)).error_code == code
            member.epoch = 0
            refused = await member.fetch((), {0: [(0, 0, ACCEPT)]}, share_session_epoch=0)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            member.epoch = 0
            assert (await member.fetch(max_wait_ms=0)).error_code == 0
            code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert (await member.fetch(share_session_epoch=2)).error_code == code
            assert (await member.acknowledge(share_session_epoch=0)).error_code == code
            assert (await member.fetch(share_session_epoch=1, max_wait_ms=0)).error_code == 0
            code = ErrorCode.INVALID_REQUEST
            assert (await member.fetch(group_id=None)).error_code == code
            assert (await member.fetch(member_id="")).error_code == code
            assert (await member.fetch(member_id="x" * 37)).error_code == code
            assert (await member.acknowledge(group_id=None)).error_code == code

    run(test)


def test_a_full_cache_of_sessions_refuses_after_the_wait(tmp_path: Path) -> None:
    async def test() -> None:
        limits = {"group_share_max_share_sessions": "1", "group_share_max_size": "1"}
        async with running(tmp_path, **SETTINGS, **limits) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            first, second = [await member_of(rig, topic, name) for name in ("a", "b")]
            await first.fetch(max_wait_ms=0)
            began = asyncio.get_running_loop().time()
            answer = await second.fetch(max_wait_ms=100)
            assert answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            assert asyncio.get_running_loop().time() - began > 0.09
            assert (await first.acknowledge(share_session_epoch=-1)).error_code == 0
            second.epoch = 0
            assert (await second.fetch(max_wait_ms=0)).error_code == 0

    run(test)


def test_a_lost_connection_frees_its_records_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            first, second = [await member_of(rig, topic, name) for name in ("a", "b")]
            await published(second.peer, topic, 5)
            assert await first.taken() == [(0, 4, 1)]
            waiting = asyncio.create_task(second.taken())
            await until(lambda: rig.broker.share._reads._parked)
            first.peer.close()
            assert await waiting == [(0, 4, 2)]
            assert (len(rig.broker.share.sessions), rig.broker.share.sessions.evicted) == (1, 1)
            second.peer.close()
            await until(lambda: len(rig.broker.share.partitions) == 0)

    run(test)


def test_a_closed_session_gives_back_what_is_not_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            first, second, third = [await member_of(rig, topic, name) for name in "abc"]
            await published(first.peer, topic, 5)
            assert await first.taken() == [(0, 4, 1)]
            assert await second.taken(max_wait_ms=50) == []
            assert await first.said((0, 1, ACCEPT), share_session_epoch=-1) == 0
            assert await second.taken() == [(2, 4, 2)]
            answer = await second.fetch((), {0: [(2, 2, ACCEPT)]}, share_session_epoch=-1)
            assert partitions_of(answer)[0].acknowledge_error_code == 0
            assert await third.taken() == [(3, 4, 3)]

    run(test)


def test_what_a_waiting_fetch_is_woken_by(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            first, second = [await member_of(rig, topic, name) for name in ("a", "b")]
            producer = await rig.peer()
            parked = rig.broker.share._reads._parked
            waiting = asyncio.create_task(first.taken())
            await until(lambda: len(parked) == 1)
            await published(producer, topic, 2)
            assert await waiting == [(0, 1, 1)]
            waiting = asyncio.create_task(second.taken())
            await until(lambda: len(parked) == 1)
            assert await first.said((0, 1, RELEASE)) == 0
            assert await waiting == [(0, 1, 2)]
            assert not parked

    run(test)


def test_max_wait_ends_in_an_empty_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            began = asyncio.get_running_loop().time()
            assert await member.taken(max_wait_ms=150) == []
            assert asyncio.get_running_loop().time() - began > 0.14
            await published(member.peer, topic, 1)
            assert await member.taken(min_bytes=100_000, max_wait_ms=50) == [(0, 0, 1)]

    run(test)


def test_a_lock_that_runs_out_and_one_that_is_renewed(tmp_path: Path) -> None:
    async def test() -> None:
        short = {
            "group_share_min_record_lock_duration_ms": "1000",
            "group_share_record_lock_duration_ms": "1000",
        }
        async with running(tmp_path, **SETTINGS, **short) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            first, second = [await member_of(rig, topic, name) for name in ("a", "b")]
            await published(first.peer, topic, 2)
            assert await first.taken() == [(0, 1, 1)]
            await asyncio.sleep(0.6)
            none = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
            renewed = await first.fetch((), {0: [(1, 1, RENEW)]}, is_renew_ack=True, **none)
            assert partitions_of(renewed)[0].acknowledge_error_code == 0
            assert await second.taken() == [(0, 0, 2)]
            assert await first.said((1, 1, ACCEPT)) == 0
            assert await first.said((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
            assert rig.broker.share.partitions.counts.lock_timeouts == 1

    run(test)


def test_the_rules_of_renewing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            await published(member.peer, topic, 2)
            assert await member.taken() == [(0, 1, 1)]
            code = ErrorCode.INVALID_REQUEST
            refused = await member.fetch((), {0: [(0, 0, RENEW)]}, is_renew_ack=True)
            assert refused.error_code == code, "nothing can be fetched along with it"
            member.epoch = 1
            assert await member.said((0, 0, RENEW)) == code
            assert await member.said((0, 0, RENEW), version=1) == code
            assert await member.said((0, 0, RENEW), (1, 1, ACCEPT), is_renew_ack=True) == 0

    run(test)


def test_wrong_acknowledgements(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member, other = [await member_of(rig, topic, name) for name in ("a", "b")]
            await published(member.peer, topic, 5)
            assert await member.taken() == [(0, 4, 1)]
            await other.fetch(max_wait_ms=0)
            wrong = ErrorCode.INVALID_REQUEST
            assert await member.said((2, 1, ACCEPT)) == wrong
            assert await member.said((0, 1, [ACCEPT] * 3)) == wrong
            assert await member.said((0, 1, [])) == wrong
            assert await member.said((0, 1, 5)) == wrong
            assert await member.said((3, 4, ACCEPT), (0, 1, ACCEPT)) == wrong
            assert await member.said((0, 9, ACCEPT)) == wrong
            assert await other.said((0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
            assert await member.said((0, 4, ACCEPT)) == 0
            no_such = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await member.said((0, 0, ACCEPT), partition=7) == no_such
            member.topic = RawTopic("unknown", bytes(15) + b"x")
            assert await member.said((0, 0, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_errors_of_partitions(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            answer = await member.fetch((0, 4), max_wait_ms=50)
            found = partitions_of(answer)
            assert found[4].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert found[0].error_code == 0
            assert 4 in partitions_of(await member.fetch((), max_wait_ms=0))
            member.epoch = 0
            member.topic = RawTopic("unknown", bytes(15) + b"x")
            found = partitions_of(
                await member.fetch(
                    (0,),
                )
            )
            assert found[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_a_deleted_topic_ends_the_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            waiting = asyncio.create_task(member.fetch())
            await until(lambda: rig.broker.share._reads._parked)
            await rig.delete_topic(topic.name)
            found = partitions_of(await waiting)
            assert found[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len(rig.broker.share.partitions) == 0

    run(test)


def test_retention_moves_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            await published(member.peer, topic, 3, 3)
            assert await member.taken(max_records=1) == [(0, 2, 1)]
            rig.partition(topic).delete_records(4)
            assert await member.said((0, 2, ACCEPT)) == 0
            assert await member.taken() == [(4, 5, 1)]

    run(test)


def test_max_bytes_is_divided_and_the_first_batch_is_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic(partitions=2)
            await begin_group(rig, topic, (0, 1))
            member = await member_of(rig, topic)
            size = len(batch([b"v0"]))
            await member.fetch((0, 1), max_wait_ms=0)
            await all_loaded(rig, 2)
            for index in (0, 1):
                await published(member.peer, topic, 1, 1, 1, partition=index)
            answer = await member.fetch((), max_bytes=4 * size)
            assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 1, 1)], [(0, 1, 1)])
            answer = await member.fetch((), max_bytes=1)
            assert [acquired(answer, index) for index in (0, 1)] == [[], [(2, 2, 1)]]
            answer = await member.fetch((), max_bytes=1)
            assert acquired(answer, 0) == [(2, 2, 1)]

    run(test)


def test_a_record_limit_is_exact_and_the_batch_is_sent_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = await member_of(rig, topic)
            await published(member.peer, topic, 5, 5)
            answer = await member.fetch(max_records=2, share_acquire_mode=1)
            assert acquired(answer) == [(0, 1, 1)]
            whole = batch([b"v%d" % number for number in range(5)])
            assert len(partitions_of(answer)[0].records) == len(whole)
            answer = await member.fetch(max_records=4, share_acquire_mode=1)
            assert sum(last - first + 1 for first, last, _ in acquired(answer)) == 4

    run(test)


@pytest.mark.uncompiled  # `read` is put in the place of a method
def test_partitions_behind_are_not_read_when_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How large records are is known once they were read."""
    read: list[Log] = []
    real = Log.read

    def noted(log: Log, *where: Any, **how: Any) -> Any:
        if log.topic_partition.topic == "t":
            read.append(log)
        return real(log, *where, **how)

    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic("t", partitions=2)
            await begin_group(rig, topic, (0, 1))
            member = await member_of(rig, topic)
            await member.fetch((0, 1), max_wait_ms=0)
            await all_loaded(rig, 2)
            for index in (0, 1):
                await published(member.peer, topic, 1, 1, 1, 1, partition=index)
            monkeypatch.setattr(Log, "read", noted)
            for logs in (2, 2, 1, 1):
                read.clear()
                answer = await member.fetch((), max_records=1, share_acquire_mode=1)
                assert len(acquired(answer, 0) + acquired(answer, 1)) == 1
                assert len(read) == logs

    run(test)


def test_settings_of_a_group_that_fetches_are_put_together_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            partitions, configs = rig.broker.share.partitions, rig.broker.share._image.configs
            assert partitions.config(GROUP) is not partitions.config(GROUP), "nobody fetches"
            member = await member_of(rig, topic)
            await member.fetch(max_wait_ms=0)
            before = partitions.config(GROUP)
            assert partitions.config(GROUP) is before
            configs[ResourceType.GROUP, GROUP] = {"share.delivery.count.limit": "7"}
            assert partitions.config(GROUP).share_delivery_count_limit == 7
            await member.fetch(share_session_epoch=-1)
            await until(lambda: not len(partitions))
            assert not partitions._configs

    run(test)
