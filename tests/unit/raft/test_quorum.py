from __future__ import annotations

import json

import pytest

from penstock.base.errors import InvariantBroken, StorageError
from penstock.raft.quorum import Append, Quorum, WriteState
from penstock.raft.state import QuorumState
from penstock.wire.messages.control_records import LeaderChangeMessage
from penstock.wire.records import ControlType, check_batch, control_type, read_records


def started(**options: int) -> Quorum:
    quorum = Quorum(3, None, log_end_offset=0, last_epoch=-1)
    quorum.start(0)
    return quorum


def test_a_start_writes_its_state_before_it_appends() -> None:
    quorum = Quorum(3, QuorumState(6, 3, voters=(3,)), log_end_offset=40, last_epoch=5)
    assert quorum.leader_id is None
    state, append = quorum.start(1234)
    assert isinstance(state, WriteState)
    assert json.loads(state.text) == {
        "clusterId": "",
        "leaderId": 3,
        "leaderEpoch": 7,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 3}],
        "data_version": 0,
    }
    assert isinstance(append, Append)
    header = check_batch(append.batch)
    assert (header.base_offset, header.partition_leader_epoch, header.is_control) == (40, 7, True)
    (record,) = read_records(append.batch)
    assert control_type(record) is ControlType.LEADER_CHANGE
    message = LeaderChangeMessage.decode(record.value or b"", 0)
    assert (message.leader_id, [v.voter_id for v in message.voters]) == (3, [3])
    assert (quorum.epoch, quorum.leader_id, quorum.log_end_offset) == (7, 3, 41)


def test_the_epoch_passes_what_the_log_has_seen() -> None:
    quorum = Quorum(3, QuorumState(2, 3), log_end_offset=9, last_epoch=8)
    quorum.start(0)
    assert quorum.epoch == 9


def test_what_an_older_epoch_left_is_committed_only_with_our_own() -> None:
    quorum = Quorum(3, None, log_end_offset=10, last_epoch=4)
    quorum.start(0)
    assert quorum.on_flushed(10) == 0
    assert quorum.on_flushed(11) == 11


def test_appends_are_committed_as_they_are_flushed() -> None:
    quorum = started()
    first = quorum.append([b"a", b"b"], 7)
    second = quorum.append([b"c"], 8)
    assert (first.first, first.last, second.first, second.last) == (1, 2, 3, 3)
    assert check_batch(second.batch).partition_leader_epoch == 1
    assert [r.value for r in read_records(first.batch)] == [b"a", b"b"]
    assert quorum.on_flushed(3) == 3
    assert quorum.on_flushed(2) == 3
    assert quorum.on_flushed(4) == 4


def test_a_refused_append_has_not_happened() -> None:
    quorum = started()
    refused = quorum.append([b"a"], 0)
    quorum.on_refused(refused)
    assert quorum.append([b"b"], 0).first == refused.first
    with pytest.raises(InvariantBroken):
        quorum.on_refused(Append(b"", 0, 0))


def test_the_rules_are_held() -> None:
    quorum = Quorum(3, None, log_end_offset=0, last_epoch=-1)
    with pytest.raises(InvariantBroken, match="only a leader"):
        quorum.append([b"a"], 0)
    quorum.start(0)
    with pytest.raises(InvariantBroken, match="twice"):
        quorum.start(0)
    with pytest.raises(InvariantBroken, match="beyond its end"):
        quorum.on_flushed(2)
    with pytest.raises(InvariantBroken, match="can only be alone"):
        Quorum(3, QuorumState(1, 1, voters=(1, 3)), log_end_offset=0, last_epoch=0)


def test_the_state_file_reads_back() -> None:
    state = QuorumState(5, 1, 1, (1, 2, 3))
    assert QuorumState.from_json(state.to_json()) == state


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"data_version":1}', '{"data_version":0}'])
def test_a_state_file_that_cannot_be_read_says_what_to_do(text: str) -> None:
    with pytest.raises(StorageError, match="restore it"):
        QuorumState.from_json(text)
