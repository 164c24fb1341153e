from __future__ import annotations

import json

import pytest

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.raft.effects import Append, BecameLeader, Committed, LeaderChanged, WriteState
from penstock.raft.state import QuorumState
from penstock.raft.stored import StoredLog
from penstock.wire.messages.control_records import LeaderChangeMessage
from penstock.wire.messages.vote import VoteRequest
from penstock.wire.records import ControlType, check_batch, control_type, read_records
from unit.raft.rig import Rig, stored, vote_request, vote_response


def test_the_only_voter_leads_at_once_and_writes_its_state_first() -> None:
    rig = Rig(StoredLog(), founder=True)
    assert rig.kinds() == ["WriteState", "BecameLeader", "Append", "LeaderChanged"]
    state, became, append, changed = rig.effects
    assert isinstance(state, WriteState)
    assert json.loads(state.text)["leaderEpoch"] == 1
    assert became == BecameLeader(1, 0)
    assert changed == LeaderChanged(1, 1)
    assert isinstance(append, Append)
    header = check_batch(append.batches)
    assert (header.base_offset, header.partition_leader_epoch, header.is_control) == (0, 1, True)
    kinds = [control_type(r) for r in read_records(append.batches)]
    assert kinds == [
        ControlType.LEADER_CHANGE,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    assert not rig.quorum.is_active
    assert Committed(3) in rig.flush()
    assert rig.quorum.is_active


def test_a_folder_of_the_release_before_gets_its_voters_at_the_first_election() -> None:
    old = '{"clusterId":"","leaderId":1,"leaderEpoch":6,"votedId":-1,"appliedOffset":0,'
    old += '"currentVoters":[{"voterId":1}],"data_version":0}'
    log = StoredLog(end_offset=40, epochs=((5, 0), (6, 30)))
    rig = Rig(log, QuorumState.from_json(old), founder=True)
    (append,) = [e for e in rig.effects if isinstance(e, Append)]
    assert (append.first, append.last) == (40, 42)
    record = read_records(append.batches)[0]
    message = LeaderChangeMessage.decode(record.value or b"", 0)
    assert (message.leader_id, [v.voter_id for v in message.granting_voters]) == (1, [1])
    assert rig.quorum.epoch == 7
    assert rig.quorum.high_watermark == 0
    rig.flush()
    assert rig.quorum.high_watermark == 43


def test_the_epoch_passes_what_the_log_has_seen() -> None:
    rig = Rig(stored(1, end_offset=9, epoch=8), QuorumState(2, 1))
    assert rig.quorum.epoch == 9


def test_an_election_asks_first_and_takes_an_epoch_then() -> None:
    rig = Rig(stored(3))
    rig.wait(1_000)
    assert [s.request.topics[0].partitions[0].pre_vote for s in rig.sent if _votes(s)] == [True] * 2
    assert rig.quorum.role == "Prospective"
    assert "WriteState" not in rig.kinds()
    rig.answer(next(filter(_votes, rig.sent)), vote_response(1, granted=True))
    assert rig.kinds()[0] == "WriteState"
    assert [s.request.topics[0].partitions[0].replica_epoch for s in rig.sent] == [2, 2]
    assert rig.quorum.role == "Candidate"
    rig.answer(rig.sent[0], vote_response(2, granted=True))
    assert rig.quorum.is_leader


def _votes(send: object) -> bool:
    return isinstance(getattr(send, "request", None), VoteRequest)


def test_a_vote_is_on_disk_before_it_is_given_and_given_once() -> None:
    rig = Rig(stored(3))
    assert rig.vote(2, 5, (3, 1)) == (ErrorCode.NONE, True)
    assert rig.kinds()[:2] == ["WriteState", "Reply"]
    assert rig.vote(3, 5, (9, 4)) == (ErrorCode.NONE, False)
    assert rig.vote(2, 5, (3, 1)) == (ErrorCode.NONE, True)
    again = Rig(stored(3), rig.quorum.state)
    assert again.vote(3, 5, (9, 4)) == (ErrorCode.NONE, False)
    assert again.vote(2, 4, (9, 4)) == (ErrorCode.FENCED_LEADER_EPOCH, False)


def test_no_vote_for_a_log_that_lacks_something() -> None:
    rig = Rig(stored(3, end_offset=10, epoch=4))
    for end in ((9, 4), (20, 3)):
        assert rig.vote(2, 7, end) == (ErrorCode.NONE, False)
        assert rig.vote(2, 7, end, pre_vote=True) == (ErrorCode.NONE, False)
    assert rig.vote(2, 7, (10, 4), pre_vote=True) == (ErrorCode.NONE, True)
    assert rig.quorum.state.voted is None
    assert rig.vote(2, 7, (10, 4)) == (ErrorCode.NONE, True)


def test_a_vote_meant_for_another_is_refused() -> None:
    rig = Rig(stored(3))
    request = vote_request(2, 5, (3, 1))
    request.topics[0].partitions[0].voter_directory_id = bytes([7]) * 16
    assert rig.ask(request).topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
    request.cluster_id = "another"
    assert rig.ask(request).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    request = VoteRequest(cluster_id="cluster", voter_id=1)
    assert rig.ask(request).error_code == ErrorCode.INVALID_REQUEST
    assert rig.quorum.epoch == 1


def test_a_leader_gives_no_pre_vote_and_steps_down_for_a_later_epoch() -> None:
    rig = Rig(stored(3)).elected()
    epoch = rig.quorum.epoch
    assert rig.vote(2, epoch, (99, epoch), pre_vote=True) == (ErrorCode.NONE, False)
    assert rig.quorum.is_leader
    assert rig.vote(2, epoch + 1, (99, epoch)) == (ErrorCode.NONE, True)
    assert "NoLongerLeader" in rig.kinds()
    assert rig.quorum.leader_id == -1


def test_a_restart_does_not_lead_the_same_epoch_again() -> None:
    rig = Rig(stored(3)).elected()
    again = Rig(stored(3), rig.quorum.state)
    assert not again.quorum.is_leader
    assert again.vote(2, rig.quorum.epoch, (99, 9)) == (ErrorCode.NONE, False)


def test_a_split_vote_is_tried_again_after_a_pause() -> None:
    rig = Rig(stored(3))
    rig.wait(1_000)
    rig.grant()
    assert rig.quorum.role == "Candidate"
    rig.grant(granted=False)
    rig.done(rig.quorum.tick(rig.now))
    for send in rig.sent:
        rig.answer(send, vote_response(2, granted=False))
    rig.wait(1_500)
    assert rig.quorum.role in ("Prospective", "Unattached")
    assert rig.quorum.epoch == 2


def test_nothing_is_started_twice() -> None:
    rig = Rig(stored(3))
    with pytest.raises(InvariantBroken, match="twice"):
        rig.quorum.start(rig.now)
    with pytest.raises(InvariantBroken, match="only a leader"):
        rig.append(b"a")
