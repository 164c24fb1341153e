"""Dead letters of a share group in a node: what they look like, once each, and what waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicPartition
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.coordinating.transactional_writer import (
    GroupPositions,
    Position,
    TransactionalWriter,
)
from penstock.metadata.features import SHARE_VERSION
from penstock.serving import dead_letters
from penstock.serving.dead_letter_topics import ENABLE
from penstock.share.dead_letter_records import PREFIX, Marker
from penstock.share.types import ShareKey
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.records import Record, build_batch
from support.calls import RawTopic
from support.committed import committed_records
from unit.coordinating.test_transactional_commits import FEW_TRANSACTIONS
from unit.coordinating.test_transactional_writer import Losing
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until
from unit.serving.share_rig import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    SETTINGS,
    ShareMember,
    begin_group,
    persisted,
)

TOPIC, GROUPS = 2, 32
DLQ = "dlq.out"
MARKERS = f"__dlq.{GROUP}"
ARCHIVING, ARCHIVED = 3, 4


class Letters:
    """A topic with records, a group with a member that has acquired all of them."""

    def __init__(self, rig: Rig, peer: Peer, topic: RawTopic) -> None:
        self.rig = rig
        self.peer = peer
        self.topic = topic
        self.member = ShareMember(peer, topic)

    async def publish(self, *records: Record) -> None:
        answer = await self.peer.produce(self.topic, build_batch(records))
        assert answer.error_code == 0

    async def written(self, count: int, partition: int = 0) -> list[Record]:
        """The dead letters, once there are so many."""
        found: list[Record] = []

        def look() -> bool:
            nonlocal found
            if DLQ not in self.rig.broker.metadata.topics:
                return False
            found = committed_records(self.rig.broker.replicas.leader_of(DLQ, partition))
            return len(found) >= count

        await until(look)
        return found

    @property
    def key(self) -> ShareKey:
        return ShareKey(GROUP, self.topic.id, 0)

    @property
    def driver(self) -> Any:
        return self.rig.broker.share.partitions.found(self.key)

    async def settled(self) -> None:
        """Everything is written, persisted, and the marker is cleared."""
        await until(lambda: not self.driver.dead_letters.is_busy and not self.waiting)

    @property
    def waiting(self) -> int:
        return int(self.driver.core.waiting_dead_letters)

    @property
    def counts(self) -> dead_letters.DeadLetterCounts:
        return self.rig.broker.dead_letters.counts_of(GROUP)

    async def marker(self) -> Position | None:
        place = TopicPartition(self.topic.name, 0)
        writer = TransactionalWriter(self.rig.broker.writers, "looks only")
        return (await writer.committed(MARKERS, [place])).get(place)


async def configure(peer: Peer, kind: int, name: str, **settings: str) -> None:
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    [answer] = (await peer.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert answer.error_code == 0, answer.error_message


@asynccontextmanager
async def letters(
    tmp_path: Path,
    *values: bytes,
    copy: bool = True,
    dlq: dict[str, str] | None = None,
    **settings: str,
) -> AsyncIterator[Letters]:
    """Records that were acquired; `dlq` are the settings of the dead-letter topic, None: none."""
    async with running(tmp_path, **SETTINGS, **FEW_TRANSACTIONS, **settings) as rig:
        rig.broker.metadata.features[SHARE_VERSION] = 2
        peer = await rig.peer()
        topic = await rig.topic(partitions=2)
        if dlq is not None:
            await rig.topic(DLQ, **dlq)
        await begin_group(rig, topic)
        await configure(
            peer,
            GROUPS,
            GROUP,
            errors_deadletterqueue_topic_name=DLQ,
            errors_deadletterqueue_copy_record_enable=str(copy).lower(),
        )
        made = Letters(rig, peer, topic)
        if values:
            await made.publish(*(Record(0, 1_000, b"k", v, (("own", b"h"),)) for v in values))
            assert await made.member.taken() == [(0, len(values) - 1, 1)]
        yield made


ENABLED = {ENABLE.replace(".", "_"): "true"}


def headers(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def offsets(records: list[Record]) -> list[int]:
    return [int(headers(record)[PREFIX + "offset"]) for record in records]


def test_a_rejected_record_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", b"b", b"c", dlq=ENABLED) as it:
            before = it.rig.broker.clock.now_ms()
            assert await it.member.said((0, 2, [ACCEPT, REJECT, ACCEPT])) == 0
            [letter] = await it.written(1)
            assert (letter.key, letter.value) == (b"k", b"b")
            assert headers(letter) == {
                "own": "h",
                "__dlq.errors.topic": it.topic.name,
                "__dlq.errors.partition": "0",
                "__dlq.errors.offset": "1",
                "__dlq.errors.group": GROUP,
                "__dlq.errors.delivery.count": "1",
                "__dlq.errors.message": "Offset rejected by client.",
                "__dlq.errors.reason": "rejected",
            }
            assert letter.timestamp >= before
            await it.settled()
            assert await persisted(it.rig, it.topic) == (3, [])
            assert it.counts.written == 1

    run(test)


def test_the_node_needs_no_rights_for_itself(tmp_path: Path) -> None:
    rights = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}

    async def test() -> None:
        async with letters(tmp_path, b"a", dlq=ENABLED, **rights) as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            assert offsets(await it.written(1)) == [0]

    run(test)


def test_without_copies_it_has_headers_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", copy=False, dlq=ENABLED) as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            [letter] = await it.written(1)
            assert (letter.key, letter.value) == (None, None)
            assert headers(letter)["own"] == "h"

    run(test)


def test_a_record_that_was_delivered_too_often_is_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, dlq=ENABLED) as it:
            await configure(it.peer, GROUPS, GROUP, share_delivery_count_limit="2")
            await it.publish(Record(0, 1_000, None, b"v"))
            for count in (1, 2):
                assert await it.member.taken() == [(0, 0, count)]
                assert await it.member.said((0, 0, RELEASE)) == 0
            [letter] = await it.written(1)
            assert headers(letter)[PREFIX + "delivery.count"] == "2"
            assert headers(letter)[PREFIX + "reason"] == "limit"
            assert headers(letter)[PREFIX + "message"] == (
                "Offset delivery count exceeded the threshold."
            )

    run(test)


def test_each_record_of_many_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(dead_letters, "RECORDS_MAX", 7)
        async with letters(tmp_path, *[b"%d" % n for n in range(50)], dlq=ENABLED) as it:
            await it.publish(*(Record(0, 1_000, None, b"%d" % n) for n in range(50, 80)))
            assert await it.member.taken() == [(50, 79, 1)]
            every_third = [REJECT if n % 3 == 0 else ACCEPT for n in range(80)]
            assert await it.member.said((0, 79, every_third)) == 0
            await it.settled()
            found = await it.written(27)
            assert offsets(found) == list(range(0, 80, 3))
            assert [record.value for record in found] == [b"%d" % n for n in range(0, 80, 3)]
            assert await persisted(it.rig, it.topic) == (80, [])
            marker = await it.marker()
            assert marker == Position(79, "")

    run(test)


def test_large_records_are_written_some_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, dlq=ENABLED) as it:
            values = [bytes([n]) * 300_000 for n in range(10)]
            for value in values:
                await it.publish(Record(0, 1_000, None, value))
            rejected = 0
            while rejected < len(values):
                for first, last, _ in await it.member.taken(max_bytes=1 << 22):
                    assert await it.member.said((first, last, REJECT)) == 0
                    rejected += last - first + 1
            found = await it.written(len(values))
            await it.settled()
            assert [record.value for record in found] == values
            assert it.counts.shortened == 0

    run(test)


def test_records_wait_for_a_topic_that_is_not_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", b"b") as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            await until(lambda: it.counts.failures["no topic"])
            assert it.waiting == 1
            assert (await persisted(it.rig, it.topic))[1][0][:3] == (0, 0, ARCHIVING)
            assert await it.member.said((1, 1, ACCEPT)) == 0
            await it.rig.topic(DLQ)
            await until(lambda: it.counts.failures["not enabled"])
            await configure(it.peer, TOPIC, DLQ, **ENABLED)
            assert offsets(await it.written(1)) == [0]
            await it.settled()
            assert await persisted(it.rig, it.topic) == (2, [])

    run(test)


def test_the_topic_is_created_where_that_is_allowed(tmp_path: Path) -> None:
    async def test() -> None:
        allowed = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
        async with letters(tmp_path, b"a", **allowed) as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            assert offsets(await it.written(1)) == [0]
            assert it.rig.broker.topic_config(DLQ).errors_deadletterqueue_group_enable

    run(test)


@pytest.mark.parametrize(
    ("dlq", "settings", "reason"),
    [
        (ENABLED | {"cleanup_policy": "compact"}, {}, "compacted"),
        (ENABLED, {"errors_deadletterqueue_topic_name_prefix": "dead."}, "topic name"),
        (ENABLED, {"offset_metadata_max_bytes": "90"}, "marker"),
        (ENABLED | {"max_message_bytes": "100"}, {}, "message_too_large"),
    ],
)
def test_records_wait_for_a_topic_that_cannot_take_them(
    tmp_path: Path,
    dlq: dict[str, str],
    settings: dict[str, str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        monkeypatch.setattr("penstock.coordinating.transactional_writer.STEP_S_MAX", 0.5)
        async with letters(tmp_path, b"a", dlq=dlq, **settings) as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            await until(lambda: it.counts.failures[reason])
            assert it.waiting == 1
            if not settings:
                await configure(
                    it.peer, TOPIC, DLQ, cleanup_policy="delete", max_message_bytes="10000"
                )
                assert offsets(await it.written(1)) == [0]
                await it.settled()

    run(test)


def test_what_is_too_large_is_written_without_its_value(tmp_path: Path) -> None:
    async def test() -> None:
        small = ENABLED | {"max_message_bytes": "2000"}
        async with letters(tmp_path, bytes(5_000), b"small", dlq=small) as it:
            assert await it.member.said((0, 1, REJECT)) == 0
            large, other = await it.written(2)
            assert (large.key, large.value) == (b"k", None)
            assert headers(large)[PREFIX + "omitted"] == "value"
            assert headers(large)["own"] == "h"
            assert (other.key, other.value) == (b"k", b"small")
            assert it.counts.shortened == 1

    run(test)


def test_the_records_that_wait_are_archived_when_the_group_wants_no_dead_letters(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a") as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            await until(lambda: it.counts.failures["no topic"])
            await configure(it.peer, GROUPS, GROUP, errors_deadletterqueue_topic_name="")
            await it.settled()
            assert await persisted(it.rig, it.topic) == (1, [])
            assert it.counts.lost == {"switched off": 1}

    run(test)


def test_a_group_does_not_write_into_the_topic_that_it_reads(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", dlq=ENABLED) as it:
            await configure(it.peer, GROUPS, GROUP, errors_deadletterqueue_topic_name=it.topic.name)
            assert await it.member.said((0, 0, REJECT)) == 0
            _, [state] = await persisted(it.rig, it.topic)
            assert state[:3] == (0, 0, ARCHIVED)
            assert it.waiting == 0

    run(test)


def test_a_record_that_has_gone_from_the_log_leaves_its_headers(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a") as it:
            await it.publish(Record(0, 1_000, None, b"b"))
            assert await it.member.taken() == [(1, 1, 1)]
            assert await it.member.said((0, 1, REJECT)) == 0
            await until(lambda: it.counts.failures["no topic"])
            it.rig.partition(it.topic).log.delete_records(1)
            await it.rig.topic(DLQ, **ENABLED)
            gone, kept = await it.written(2)
            assert offsets([gone, kept]) == [0, 1]
            assert (gone.key, gone.value) == (None, None)
            assert headers(gone)[PREFIX + "omitted"] == "record"
            assert kept.value == b"b"

    run(test)


def test_retention_that_is_noticed_by_a_fetch_is_counted(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", b"b") as it:
            assert await it.member.said((0, 1, REJECT)) == 0
            await until(lambda: it.counts.failures["no topic"])
            it.rig.partition(it.topic).log.delete_records(2)
            await it.member.fetch(max_wait_ms=0)
            assert it.counts.lost == {"retention": 2}
            await it.settled()

    run(test)


# -- exactly once ------------------------------------------------------------------------------


async def loses_leadership(it: Letters) -> None:
    """The share-partition is loaded anew, as by another leader."""
    it.driver.fence(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    it.member = ShareMember(it.peer, it.topic, "another")
    await it.member.fetch(max_wait_ms=0)
    await until(lambda: it.driver.is_active)


def test_what_was_written_and_not_persisted_is_found_by_the_marker(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", b"b", b"c", dlq=ENABLED) as it:

            async def not_persisted(self: Any, ranges: list[tuple[int, int]]) -> None:
                raise dead_letters._Fenced("the leader dies")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(dead_letters.DeadLetterDriver, "_settle", not_persisted)
                assert await it.member.said((0, 1, REJECT)) == 0
                assert offsets(await it.written(2)) == [0, 1]
                marker = await it.marker()
                assert marker is not None
                assert marker.metadata == Marker(it.topic.id, 0, [(0, 1)]).text
            await loses_leadership(it)
            await it.settled()
            assert offsets(await it.written(2)) == [0, 1]
            assert await it.marker() == Position(2, "")
            assert it.counts.written == 2

    run(test)


def test_a_transaction_that_was_open_is_aborted_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", dlq=ENABLED) as it:
            ended = TransactionalWriter._end
            monkeypatch.setattr(TransactionalWriter, "_end", _never)
            assert await it.member.said((0, 0, REJECT)) == 0
            partition = it.rig.broker.replicas.leader_of(DLQ, 0)
            await until(lambda: partition.log.log_end_offset == 1)
            monkeypatch.setattr(TransactionalWriter, "_end", ended)
            await loses_leadership(it)
            await it.settled()
            assert offsets(await it.written(1)) == [0]
            assert partition.log.log_end_offset == 4  # aborted, its marker, committed, its marker

    run(test)


async def _never(self: Any, *args: Any, **how: Any) -> None:
    await until(lambda: False)


def test_who_was_fenced_by_a_leader_of_the_past_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", b"b", dlq=ENABLED) as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            await it.written(1)
            await it.settled()
            past = TransactionalWriter(it.rig.broker.writers, f"__dlq.{GROUP}:{it.topic.name}:0")
            await past.open()
            assert await it.member.said((1, 1, REJECT)) == 0
            assert offsets(await it.written(2)) == [0, 1]
            await it.settled()
            assert sum(it.counts.failures.values()) == 1

    run(test)


def test_a_leader_of_the_past_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a") as it:
            assert await it.member.said((0, 0, REJECT)) == 0
            await until(lambda: it.counts.failures["no topic"])
            epoch = it.driver.leader_epoch
            await it.rig.broker.persister.read(it.key, epoch + 1)  # by a later leader
            driver = it.driver
            driver.dead_letters._ready = False
            await it.rig.topic(DLQ, **ENABLED)
            await until(lambda: driver.error is not None)
            assert await it.written(0) == []

    run(test)


def test_an_outcome_that_is_not_known_is_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", b"b", dlq=ENABLED) as it:
            monkeypatch.setattr("penstock.coordinating.transactional_writer.STEP_S_MAX", 0.3)
            losing = Losing(it.rig.broker.writers, EndTxnRequest, times=1_000)
            object.__setattr__(it.rig.broker.writers, "here", losing)
            assert await it.member.said((0, 1, REJECT)) == 0
            await until(lambda: it.counts.failures["network_exception"])
            losing.times = 0
            await it.settled()
            assert offsets(await it.written(2)) == [0, 1]

    run(test)


def test_a_marker_is_forgotten_before_its_records_are_revived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", dlq=ENABLED) as it:
            clear = dead_letters.DeadLetterDriver._clear
            monkeypatch.setattr(dead_letters.DeadLetterDriver, "_clear", _never)
            assert await it.member.said((0, 0, REJECT)) == 0
            await it.written(1)
            await until(lambda: not it.waiting)
            monkeypatch.setattr(dead_letters.DeadLetterDriver, "_clear", clear)
            await loses_leadership(it)
            marker = await it.marker()
            assert marker is not None
            assert marker.metadata
            await it.driver.dead_letters.forget_marker()
            assert await it.marker() == Position(1, "")

    run(test)


def test_a_marker_of_offsets_that_were_set_anew_means_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with letters(tmp_path, b"a", dlq=ENABLED) as it:
            place = TopicPartition(it.topic.name, 0)
            text = Marker(it.topic.id, 7, [(0, 0)]).text
            writer = TransactionalWriter(it.rig.broker.writers, "before")
            await writer.open()
            await writer.write({}, GroupPositions(MARKERS, {place: Position(1, text)}))
            assert await it.member.said((0, 0, REJECT)) == 0
            assert offsets(await it.written(1)) == [0]

    run(test)
