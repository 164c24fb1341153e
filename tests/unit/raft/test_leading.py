from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.base.ids import METADATA_TOPIC
from penstock.raft.effects import Append, Committed
from penstock.raft.fetching import (
    Diverging,
    Refuse,
    RefuseSnapshot,
    Serve,
    ServeSnapshot,
    UseSnapshot,
)
from penstock.raft.types import OffsetAndEpoch, ReplicaKey
from penstock.wire.messages import add_raft_voter, fetch_snapshot, update_raft_voter
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from unit.raft.rig import CLUSTER, Rig, fetch_request, key, stored


def leader(voters: int = 3, **config: Any) -> Rig:
    """The leader of epoch 2; its log: 0..2 of epoch 1, the LeaderChange record at 3."""
    rig = Rig(stored(voters), **config)
    return rig.elected() if voters > 1 else rig


def committed(voters: int = 3, **config: Any) -> Rig:
    rig = leader(voters, **config)
    rig.flush()
    if voters > 1:
        rig.fetched(key(2), 4, 2)
    assert rig.quorum.is_active
    return rig


def test_the_high_watermark_needs_a_majority_and_a_record_of_this_epoch() -> None:
    rig = leader()
    assert rig.quorum.high_watermark == 0
    rig.fetched(key(2), 3, 1)
    assert rig.quorum.high_watermark == 0
    rig.fetched(key(9), 4, 2)
    assert rig.quorum.high_watermark == 0
    rig.fetched(key(2, directory=8), 4, 2)
    assert rig.quorum.high_watermark == 0
    verdict = rig.fetched(key(2), 4, 2)
    assert Committed(4) in rig.effects
    assert verdict.high_watermark == 4


def test_what_is_not_flushed_here_is_not_committed() -> None:
    rig = committed()
    rig.append(b"a")
    rig.fetched(key(2), 5, 2)
    rig.fetched(key(3), 5, 2)
    assert rig.quorum.high_watermark == 4
    assert rig.flush() == [Committed(5)]


def test_the_verdicts_on_a_fetch() -> None:
    rig = committed()
    serve = rig.fetched(key(2), 3, 1)
    assert isinstance(serve, Serve)
    assert (serve.first, serve.end_offset, serve.has_news) == (3, 4, True)
    assert not rig.fetched(key(2), 4, 2).has_news
    verdict = rig.fetched(key(2), 7, 1)
    assert isinstance(verdict, Diverging)
    assert verdict.end == (3, 1)
    part = verdict.response.responses[0].partitions[0]
    assert (part.diverging_epoch.end_offset, part.diverging_epoch.epoch) == (3, 1)
    assert rig.fetched(key(2), 4, 2, cluster_id="another").error == (
        ErrorCode.INCONSISTENT_CLUSTER_ID
    )
    rig.quorum.on_snapshot_written(OffsetAndEpoch(4, 2))
    rig.quorum.on_log_trimmed(4)
    for offset, epoch in ((0, 0), (3, 1), (4, 1)):
        verdict = rig.fetched(key(2), offset, epoch)
        assert isinstance(verdict, UseSnapshot)
        assert verdict.id == (4, 2)
    assert isinstance(rig.fetched(key(2), 4, 2), Serve)


def test_epochs_of_readers_are_checked() -> None:
    rig = committed()
    request_epoch = rig.quorum.epoch
    for epoch, error in (
        (request_epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (request_epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        verdict, _ = rig.quorum.on_fetch(fetch_request(key(2), 3, 1, epoch), rig.now)
        assert isinstance(verdict, Refuse)
        assert verdict.error == error
    assert not rig.quorum.is_leader
    verdict, _ = rig.quorum.on_fetch(fetch_request(key(2), 3, 1, rig.quorum.epoch), rig.now)
    assert isinstance(verdict, Refuse)
    assert verdict.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_verdicts_on_a_fetch_of_a_snapshot() -> None:
    rig = committed()
    for epoch, position, error in (
        (2, 0, None),
        (1, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, -1, 99),
    ):
        part = fetch_snapshot.RequestPartitionSnapshot(
            partition=0,
            current_leader_epoch=epoch,
            snapshot_id=fetch_snapshot.SnapshotId(end_offset=4, epoch=2),
            position=position,
        )
        topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part])
        request = fetch_snapshot.FetchSnapshotRequest(
            cluster_id=CLUSTER, replica_id=2, max_bytes=10, topics=[topic]
        )
        verdict, _ = rig.quorum.on_fetch_snapshot(request, rig.now)
        if error is None:
            assert isinstance(verdict, ServeSnapshot)
            assert (verdict.id, verdict.position, verdict.max_bytes) == ((4, 2), 0, 10)
        else:
            assert isinstance(verdict, RefuseSnapshot)
            assert verdict.error == error


def test_a_leader_that_hears_no_majority_resigns() -> None:
    rig = committed()
    rig.wait(1_999)
    assert rig.quorum.is_leader
    rig.fetched(key(3), 4, 2)
    rig.wait(1_999)
    assert rig.quorum.is_leader
    rig.wait(1)
    assert rig.quorum.role == "Resigned"
    ends = [s.request for s in rig.sent if type(s.request).__name__ == "EndQuorumEpochRequest"]
    line = [c.candidate_id for c in ends[0].topics[0].partitions[0].preferred_candidates]
    assert line == [2, 3]


def test_a_fetch_that_is_judged_again_is_no_new_sign_of_life() -> None:
    rig = committed()
    rig.wait(100)
    request = fetch_request(key(3), 4, 2, rig.quorum.epoch)
    came_ms = rig.now
    rig.quorum.on_fetch(request, rig.now)
    rig.wait(1_500)
    verdict, _ = rig.quorum.on_fetch(request, rig.now, came_ms)
    assert isinstance(verdict, Serve)
    parted = fetch_request(key(3), 9, 2, rig.quorum.epoch)
    verdict, _ = rig.quorum.on_fetch(parted, rig.now, came_ms)
    assert isinstance(verdict, Diverging)
    rig.wait(499)
    assert rig.quorum.is_leader
    rig.wait(1)
    assert rig.quorum.role == "Resigned"


def test_an_old_fetch_does_not_make_a_voter_unheard() -> None:
    rig = committed()
    came_ms = rig.now
    rig.wait(1_000)
    rig.fetched(key(3), 4, 2)
    rig.quorum.on_fetch(fetch_request(key(3), 4, 2, rig.quorum.epoch), rig.now, came_ms)
    rig.wait(1_999)
    assert rig.quorum.is_leader


def test_a_refused_append_has_not_happened() -> None:
    rig = committed()
    refused = rig.append(b"a")
    assert rig.quorum.on_refused(refused, rig.now) == []
    assert rig.append(b"b").first == refused.first
    with pytest.raises(InvariantBroken):
        rig.quorum.on_refused(Append(b"", 0, 0), rig.now)
    with pytest.raises(InvariantBroken, match="beyond its end"):
        rig.quorum.on_flushed(99, rig.now)


# -- changes of the voters ---------------------------------------------------------------------


def add(replica: ReplicaKey, **fields: Any) -> add_raft_voter.AddRaftVoterRequest:
    listener = add_raft_voter.Listener(name="PLAIN", host=f"h{replica.id}", port=9092)
    values: dict[str, Any] = {
        "cluster_id": CLUSTER,
        "timeout_ms": 1_000,
        "voter_id": replica.id,
        "voter_directory_id": replica.directory_id,
        "listeners": [listener],
    }
    return add_raft_voter.AddRaftVoterRequest(**(values | fields))


def remove(replica: ReplicaKey) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=CLUSTER, voter_id=replica.id, voter_directory_id=replica.directory_id
    )


def update(replica: ReplicaKey, port: int, **fields: Any) -> Any:
    values: dict[str, Any] = {
        "cluster_id": CLUSTER,
        "current_leader_epoch": 2,
        "voter_id": replica.id,
        "voter_directory_id": replica.directory_id,
        "listeners": [update_raft_voter.Listener(name="PLAIN", host="new", port=port)],
        "k_raft_version_feature": update_raft_voter.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    }
    return update_raft_voter.UpdateRaftVoterRequest(**(values | fields))


REFUSALS = [
    (add(key(4), cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    (add(key(-4, directory=4)), ErrorCode.INVALID_REQUEST),
    (add(ReplicaKey(4)), ErrorCode.INVALID_REQUEST),
    (add(key(4), listeners=[]), ErrorCode.INVALID_REQUEST),
    (add(key(2)), ErrorCode.DUPLICATE_VOTER),
    (add(key(2, directory=9)), ErrorCode.DUPLICATE_VOTER),
    (add(key(4)), ErrorCode.REQUEST_TIMED_OUT),
    (remove(key(4)), ErrorCode.VOTER_NOT_FOUND),
    (remove(key(2, directory=9)), ErrorCode.VOTER_NOT_FOUND),
    (update(key(4), 1), ErrorCode.VOTER_NOT_FOUND),
    (update(key(2), 1, current_leader_epoch=1), ErrorCode.FENCED_LEADER_EPOCH),
    (update(key(2), 1, current_leader_epoch=3), ErrorCode.UNKNOWN_LEADER_EPOCH),
    (update(key(2), 1, listeners=[]), ErrorCode.INVALID_REQUEST),
    (
        update(key(2), 1, k_raft_version_feature=update_raft_voter.KRaftVersionFeature()),
        ErrorCode.INVALID_REQUEST,
    ),
]


@pytest.mark.parametrize(("request_", "error"), REFUSALS)
def test_what_a_change_needs(request_: Any, error: ErrorCode) -> None:
    rig = committed()
    assert rig.ask(request_).error_code == error
    assert rig.quorum.log_end_offset == 4


@pytest.mark.parametrize("request_", [add(key(4)), remove(key(2)), update(key(2), 1)])
def test_a_change_waits_for_the_epoch_and_for_the_change_before(request_: Any) -> None:
    rig = leader()
    assert rig.ask(request_).error_code == ErrorCode.REQUEST_TIMED_OUT
    rig = committed()
    rig.fetched(key(4), 4, 2)
    assert rig.ask(remove(key(3))) is None
    assert rig.ask(request_).error_code == ErrorCode.REQUEST_TIMED_OUT
    follower = Rig(stored(3)).follows(2, 2)
    assert follower.ask(request_).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_voter_counts_at_once_and_is_answered_when_committed() -> None:
    rig = committed(1)
    rig.fetched(key(2), rig.quorum.log_end_offset, 2)
    assert rig.ask(add(key(2))) is None
    assert [k.id for k in rig.quorum.voters.keys] == [1, 2]
    rig.flush()
    rig.fetched(key(2), rig.quorum.log_end_offset, 2)
    assert rig.reply.error_code == ErrorCode.NONE


def test_a_change_that_takes_too_long_or_loses_its_leader_is_answered() -> None:
    rig = committed()
    rig.ask(remove(key(3)))
    rig.fetched(key(2), 4, 2)
    rig.now += 1_000
    rig.fetched(key(2), 4, 2)
    rig.now += 1_000
    rig.fetched(key(2), 4, 2)
    assert rig.reply.error_code == ErrorCode.REQUEST_TIMED_OUT
    rig = committed()
    rig.ask(remove(key(3)))
    rig.done(rig.quorum.resign(rig.now))
    assert rig.reply.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_last_voter_stays() -> None:
    rig = committed(1)
    assert rig.ask(remove(key(1))).error_code == ErrorCode.INVALID_REQUEST


def test_a_leader_that_removed_itself_does_not_count_itself_and_goes() -> None:
    rig = committed()
    rig.ask(remove(key(1)))
    rig.flush()
    rig.fetched(key(2), 5, 2)
    assert (rig.quorum.high_watermark, rig.quorum.is_leader) == (4, True)
    rig.fetched(key(3), 5, 2)
    assert rig.quorum.high_watermark == 5
    assert rig.quorum.role == "Resigned"
    rig.wait(5_000)
    assert rig.quorum.role == "Unattached"
    assert rig.quorum.next_deadline_ms > rig.now


def test_an_unchanged_voter_is_not_written_again() -> None:
    rig = committed()
    assert rig.ask(update(key(2), 7)) is None
    rig.flush()
    rig.fetched(key(2), 5, 2)
    assert rig.reply.error_code == ErrorCode.NONE
    assert rig.ask(update(key(2), 7)).error_code == ErrorCode.NONE
    assert rig.quorum.log_end_offset == 5
