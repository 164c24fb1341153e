from __future__ import annotations

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC
from penstock.raft.effects import (
    Append,
    Committed,
    InstallSnapshot,
    LoadSnapshot,
    Truncate,
    WriteSnapshot,
)
from penstock.raft.types import OffsetAndEpoch
from penstock.raft.voters import VoterSet
from penstock.wire.messages import fetch_snapshot as wire
from penstock.wire.messages.fetch import EpochEndOffset, FetchRequest, SnapshotId
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.records import Record, build_batch
from penstock.wire.schema import Message
from unit.raft.rig import Rig, fetch_response, key, node, stored


def batch(offset: int, epoch: int, *values: bytes) -> bytes:
    records = [Record(0, 0, None, value) for value in values]
    return build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


def follower(**config: object) -> Rig:
    return Rig(stored(3), **config).follows(2, 4)


def test_the_leader_is_on_disk_before_it_is_followed() -> None:
    rig = follower()
    assert rig.kinds() == ["WriteState", "Reply", "Send", "LeaderChanged"]
    assert isinstance(rig.sent[0].request, FetchRequest)
    assert rig.sent[0].to == (2, "h2", 9092, "PLAIN")
    assert rig.quorum.leader_address == rig.sent[0].to


def test_the_next_fetch_is_from_what_is_flushed() -> None:
    rig = follower()
    records = batch(3, 4, b"a", b"b")
    rig.answer(rig.sent[0], fetch_response(4, 2, high_watermark=5, records=records))
    assert rig.kinds() == ["Append", "Committed"]
    assert rig.effects[1] == Committed(3)
    rig.flush()
    assert rig.effects[0] == Committed(5)
    part = rig.sent[0].request.topics[0].partitions[0]
    assert (part.fetch_offset, part.last_fetched_epoch, part.high_watermark) == (5, 4, 5)


def test_only_whole_sound_batches_that_follow_the_log_are_taken() -> None:
    good = batch(3, 4, b"a")
    rig = follower()
    rig.answer(rig.sent[0], fetch_response(4, 2, records=good + batch(4, 4, b"b")[:-1]))
    assert rig.effects == [Append(good, 3, 3)]
    for bad in (batch(4, 4, b"x"), good[:-1] + b"?", batch(3, 5, b"from the future")):
        rig = follower()
        rig.answer(rig.sent[0], fetch_response(4, 2, records=bad))
        assert rig.kinds() == []
        assert rig.quorum.log_end_offset == 3


def test_a_diverging_log_is_cut_but_never_below_the_high_watermark() -> None:
    rig = follower()
    rig.answer(rig.sent[0], fetch_response(4, 2, records=batch(3, 2, b"a") + batch(4, 3, b"b")))
    rig.flush()
    diverging = EpochEndOffset(epoch=2, end_offset=9)
    rig.answer(rig.sent[0], fetch_response(4, 2, diverging_epoch=diverging))
    assert rig.effects[0] == Truncate(4)
    assert rig.sent[0].request.topics[0].partitions[0].fetch_offset == 4


def test_a_late_answer_of_another_role_changes_nothing() -> None:
    rig = follower()
    old = rig.sent[0]
    rig.follows(3, 5)
    rig.answer(old, fetch_response(4, 2, high_watermark=9, records=batch(3, 4, b"a")))
    assert rig.effects == []
    assert (rig.quorum.log_end_offset, rig.quorum.leader_id) == (3, 3)


def test_a_silent_leader_is_given_up_after_the_fetch_timeout() -> None:
    rig = follower()
    rig.wait(1_999)
    assert rig.quorum.role == "Follower"
    rig.wait(1)
    assert rig.quorum.role == "Prospective"


def test_a_refused_connection_shortens_that_and_frees_the_pre_vote() -> None:
    rig = follower()
    rig.answer(rig.sent[0], fetch_response(4, 2, high_watermark=3))
    assert rig.vote(3, 4, (9, 4), pre_vote=True) == (ErrorCode.NONE, False)
    rig.done(rig.quorum.on_connection_refused(3, rig.now))
    assert rig.quorum.next_deadline_ms - rig.now > 150
    rig.done(rig.quorum.on_connection_refused(2, rig.now))
    assert rig.quorum.next_deadline_ms - rig.now <= 150
    assert rig.vote(3, 4, (9, 4), pre_vote=True) == (ErrorCode.NONE, True)
    rig.wait(150)
    assert rig.quorum.role == "Prospective"


def test_an_observer_never_stands_for_election() -> None:
    rig = Rig(stored(0), bootstrap_servers=(("b", 9092),))
    assert rig.sent[0].to[:3] == (-1, "b", 9092)
    for _ in range(10):
        rig.wait(5_000)
        assert rig.quorum.role == "Unattached"


def test_a_snapshot_is_fetched_loaded_and_only_then_installed() -> None:
    rig = follower()
    found = OffsetAndEpoch(20, 3)
    wanted = SnapshotId(end_offset=20, epoch=3)
    rig.answer(rig.sent[0], fetch_response(4, 2, snapshot_id=wanted))
    for position, chunk in ((0, b"12345"), (5, b"678")):
        send = rig.sent[0]
        assert isinstance(send.request, FetchSnapshotRequest)
        assert send.request.topics[0].partitions[0].position == position
        rig.answer(send, snapshot_response(found, position, chunk))
        assert rig.effects[0] == WriteSnapshot(found, position, chunk)
    assert rig.effects[1] == LoadSnapshot(found)
    assert rig.quorum.log_end_offset == 3
    voters = VoterSet([node(1), node(2)])
    rig.done(rig.quorum.on_snapshot_loaded(found, 1, voters, rig.now))
    assert rig.effects[:2] == [InstallSnapshot(found), Committed(20)]
    assert (rig.quorum.log_end_offset, rig.quorum.voters) == (20, voters)
    part = rig.sent[0].request.topics[0].partitions[0]
    assert (part.fetch_offset, part.last_fetched_epoch) == (20, 3)


def test_a_loaded_snapshot_is_dropped_when_the_leader_has_changed() -> None:
    rig = follower()
    found = OffsetAndEpoch(20, 3)
    rig.answer(rig.sent[0], fetch_response(4, 2, snapshot_id=SnapshotId(end_offset=20, epoch=3)))
    rig.answer(rig.sent[0], snapshot_response(found, 0, b"12345678"))
    rig.follows(3, 5)
    assert rig.done(rig.quorum.on_snapshot_loaded(found, 1, VoterSet(), rig.now)) == []
    assert rig.quorum.log_end_offset == 3


def test_a_snapshot_that_cannot_be_loaded_is_fetched_again() -> None:
    rig = follower()
    rig.answer(rig.sent[0], fetch_response(4, 2, snapshot_id=SnapshotId(end_offset=20, epoch=3)))
    rig.answer(rig.sent[0], snapshot_response(OffsetAndEpoch(20, 3), 0, b"12345678"))
    rig.done(rig.quorum.on_snapshot_load_failed(rig.now))
    rig.wait(50)
    assert isinstance(rig.sent[0].request, FetchRequest)


def test_reading_a_large_snapshot_may_take_longer_than_the_fetch_timeout() -> None:
    rig = follower()
    found = OffsetAndEpoch(20, 3)
    rig.answer(rig.sent[0], fetch_response(4, 2, snapshot_id=SnapshotId(end_offset=20, epoch=3)))
    rig.answer(rig.sent[0], snapshot_response(found, 0, b"12345678"))
    rig.wait(10_000)
    assert rig.quorum.role == "Follower"
    rig.done(rig.quorum.on_snapshot_loaded(found, 1, VoterSet([node(1), node(2)]), rig.now))
    assert rig.effects[0] == InstallSnapshot(found)
    rig.wait(1_999)
    assert rig.quorum.role == "Follower"
    rig.wait(1)
    assert rig.quorum.role == "Prospective"


def snapshot_response(found: OffsetAndEpoch, position: int, chunk: bytes) -> Message:
    part = wire.ResponsePartitionSnapshot(
        index=0,
        snapshot_id=wire.SnapshotId(end_offset=found.offset, epoch=found.epoch),
        current_leader=wire.LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
        size=8,
        position=position,
        unaligned_records=chunk,
    )
    topic = wire.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
    return wire.FetchSnapshotResponse(topics=[topic])


def test_what_the_log_did_not_take_is_fetched_again() -> None:
    rig = follower()
    rig.answer(rig.sent[0], fetch_response(4, 2, records=batch(3, 4, b"a")))
    (append,) = rig.effects
    assert isinstance(append, Append)
    rig.done(rig.quorum.on_refused(append, rig.now))
    assert rig.quorum.log_end_offset == 3
    rig.wait(50)
    assert rig.sent[0].request.topics[0].partitions[0].fetch_offset == 3


@pytest.mark.parametrize("auto_join", [True, False])
def test_a_node_joins_by_itself_only_if_it_is_told_to(auto_join: bool) -> None:
    log = stored(0)._replace(voter_sets=((2, VoterSet([node(2)])),))
    rig = Rig(log, auto_join=auto_join).follows(2, 4)
    rig.answer(rig.sent[0], fetch_response(4, 2, high_watermark=3))
    kinds = [type(s.request).__name__ for s in rig.sent]
    assert kinds == ["FetchRequest", "AddRaftVoterRequest"][: 1 + auto_join]


def test_the_former_self_is_removed_first() -> None:
    old = node(1)._replace(key=key(1, directory=9))
    log = stored(0)._replace(voter_sets=((2, VoterSet([old, node(2)])),))
    rig = Rig(log, auto_join=True).follows(2, 4)
    rig.answer(rig.sent[0], fetch_response(4, 2, high_watermark=3))
    request = rig.sent[1].request
    assert type(request).__name__ == "RemoveRaftVoterRequest"
    assert (request.voter_id, request.voter_directory_id) == old.key
