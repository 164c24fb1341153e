"""Random histories: what holds after every decision, and what the log is able to rebuild."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings

from penstock.base.errors import ApiError
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, Partition
from penstock.metadata.partition_change import directory_of
from penstock.metadata.partition_index import PartitionIndex
from penstock.metadata.records import (
    ClearElrRecord,
    MetadataRecord,
    PartitionChangeRecord,
    decode_record,
    encode_record,
)
from penstock.metadata.snapshot import snapshot_records
from unit.metadata.rig import Rig, commands, records_of, run, started


def through_log(records: list[MetadataRecord], level: int) -> list[MetadataRecord]:
    return [decode_record(encode_record(record, level)) for record in records]


@settings(max_examples=150, deadline=None)
@given(commands)
def test_partitions_stay_sound(history: list[tuple[Any, ...]]) -> None:
    rig = started()

    def check(
        before: dict[tuple[bytes, int], Partition], records: list[MetadataRecord], kind: str
    ) -> None:
        assert_sound(rig)
        assert_changes_allowed(rig, before, records, kind)
        assert_index_is_right(rig)

    rig.watch = check
    for command in history:
        with suppress(ApiError):
            run(rig, command)
    assert rig.replayed() == rig.image


def assert_sound(rig: Rig) -> None:
    image = rig.image
    assert image.partition_count == sum(len(t.partitions) for t in image.topics.values())
    assert set(image.topics) == {t.name for t in image.topics_by_id.values()}
    for partition in rig.partitions().values():
        assert_eligible_sound(rig, partition)
        assert len(set(partition.isr)) == len(partition.isr)
        assert set(partition.isr) <= set(partition.replicas)
        assert len(set(partition.replicas)) == len(partition.replicas)
        assert len(partition.directories) == len(partition.replicas)
        assert set(partition.adding) | set(partition.removing) <= set(partition.replicas)
        if partition.leader >= 0:
            assert partition.leader in partition.isr
            leader = image.brokers[partition.leader]
            assert not leader.fenced
            assert not leader.in_controlled_shutdown
            assert directory_of(partition, leader.id) in (*leader.log_dirs, bytes(16))


def assert_eligible_sound(rig: Rig, partition: Partition) -> None:
    if not rig.image.keeps_elr:
        assert partition.isr
        assert not partition.elr
        assert not partition.last_known_elr
        return
    assert len(set(partition.elr)) == len(partition.elr)
    assert set(partition.elr) <= set(partition.replicas) - set(partition.isr)
    assert len(partition.last_known_elr) <= 1
    if partition.leader >= 0:
        assert partition.isr
        assert not partition.last_known_elr
    elif not (partition.isr or partition.elr):
        assert partition.last_known_elr, "a partition that nobody but an operator can revive"


def assert_changes_allowed(
    rig: Rig,
    before: dict[tuple[bytes, int], Partition],
    records: list[MetadataRecord],
    kind: str,
) -> None:
    changes = [r for r in records if isinstance(r, PartitionChangeRecord)]
    keys = [(r.topic_id, r.partition_id) for r in changes]
    cleared = any(isinstance(r, ClearElrRecord) for r in records)
    assert len(set(keys)) == len(keys), "one decision changes a partition once"
    for key, partition in rig.partitions().items():
        old = before.get(key)
        if old is None:
            continue
        lost_elr = cleared and partition.elr != old.elr
        assert partition.partition_epoch == old.partition_epoch + (key in keys or lost_elr)
        assert partition.leader_epoch - old.leader_epoch in (0, 1)
        if partition.leader != old.leader or not set(old.replicas) <= set(partition.replicas):
            assert partition.leader_epoch == old.leader_epoch + 1
        if partition.leader not in (-1, old.leader):
            assert_may_lead(rig, key, old, partition, kind)


def assert_may_lead(
    rig: Rig, key: tuple[bytes, int], old: Partition, partition: Partition, kind: str
) -> None:
    """A new leader was in sync and has its data, or comes by an election that may be unclean."""
    leader = rig.image.brokers[partition.leader]
    has_data = directory_of(old, leader.id) in (*leader.log_dirs, bytes(16))
    if leader.id in (*old.isr, *old.elr) and has_data:
        return
    if rig.image.keeps_elr and old.last_known_elr == (leader.id,) and has_data:
        assert partition.recovery_state == 1
        return
    if kind == "alter_isr":
        return  # The earlier leader says that it is in sync.
    topic = rig.image.topics_by_id[key[0]]
    allowed = rig.image.topic_config(topic.name).get("unclean.leader.election.enable")
    assert kind == "elect 1" or allowed == "true"
    cancelled = bool(old.adding or old.removing) and not partition.adding
    assert partition.isr == (leader.id,)
    assert partition.recovery_state == 1 or cancelled


def assert_index_is_right(rig: Rig) -> None:
    kept = rig.controller._index
    fresh = PartitionIndex(rig.image)
    for name in ("leaderless", "not_preferred", "reassigning", "eligible"):
        assert set(getattr(kept, name)) == set(getattr(fresh, name))
    for name in ("preferring", "replicas", "leading"):
        assert +getattr(kept, name) == +getattr(fresh, name)
    for broker in range(1, 5):
        held = {(p.topic.id, p.index) for p in kept.held_by(broker)}
        assert held == {(p.topic.id, p.index) for p in fresh.held_by(broker)}


@settings(max_examples=80, deadline=None)
@given(commands)
def test_a_snapshot_gives_an_equal_image(history: list[tuple[Any, ...]]) -> None:
    rig = started()
    for command in history:
        with suppress(ApiError):
            run(rig, command)
    frozen = rig.image.frozen()
    level = rig.image.metadata_version
    records = through_log(list(snapshot_records(frozen)), level)
    rebuilt = MetadataImage()
    rebuilt.apply(records, MetadataDelta())
    assert rebuilt == rig.image


@settings(max_examples=80, deadline=None)
@given(commands, commands)
def test_taking_another_image_over_says_what_changed(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]
) -> None:
    """A replica that lags and loads a snapshot is told the same as one that applied every record,
    apart from what was undone in between.
    """
    rig = started()
    for command in first:
        with suppress(ApiError):
            run(rig, command)
    lagging = rig.image.copy()
    behind = rig.image.frozen()
    start = len(rig.log)
    for command in second:
        with suppress(ApiError):
            run(rig, command)
    told = MetadataDelta()
    follower = lagging.copy()
    follower.apply(records_of(rig)[start:], told)
    delta = lagging.replace_with(rig.image)
    assert lagging == rig.image == follower
    assert delta.created_topics.keys() == told.created_topics.keys()
    assert delta.deleted_topics.keys() == told.deleted_topics.keys()
    assert delta.changed_partitions <= told.changed_partitions
    assert delta.changed_brokers <= told.changed_brokers
    assert delta.changed_configs <= told.changed_configs | {
        (2, topic.name) for topic in told.deleted_topics.values()
    }
    assert delta.features_changed == (dict(behind.features) != rig.image.features)
    old_topics = {topic.id: topic for topic in behind.topics.values()}
    for topic_id, topic in rig.image.topics_by_id.items():
        old = old_topics[topic_id].partitions if topic_id in old_topics else []
        for index, partition in enumerate(topic.partitions):
            same = index < len(old) and old[index] == partition
            assert same == ((topic_id, index) not in delta.changed_partitions)
    rig.image.apply(
        [
            PartitionChangeRecord(partition_id=0, topic_id=t.id, leader=-1)
            for t in rig.image.topics.values()
        ],
        MetadataDelta(),
    )
    assert lagging == follower, "the two images go their own ways"
