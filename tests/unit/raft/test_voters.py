from __future__ import annotations

from penstock.raft.control_records import kraft_version, read_control, voters_record
from penstock.raft.stored import LogScan
from penstock.raft.voters import History, VoterSet
from penstock.wire.records import build_batch, parse_header
from unit.raft.rig import key, node


def test_a_voter_is_its_id_and_its_directory() -> None:
    voters = VoterSet([node(2), node(1)])
    assert voters.keys == [key(1), key(2)]
    assert key(1) in voters
    assert key(1, directory=9) not in voters
    assert voters.without(1).keys == [key(2)]
    assert voters.with_node(node(3)).majority == 2
    assert [VoterSet(node(i) for i in range(n)).majority for n in (1, 2, 3, 4, 5)] == [
        1,
        2,
        2,
        3,
        3,
    ]


def test_a_history_goes_back_with_the_log() -> None:
    history = History([(2, "a"), (7, "b")])
    assert (history.last, history.previous, history.last_offset) == ("b", "a", 7)
    assert [history.before(n) for n in (2, 3, 7, 8)] == [None, "a", "a", "b"]
    assert not history.truncate(8)
    assert history.truncate(7)
    assert (history.last, history.previous) == ("a", None)
    history.add(9, "c")
    history.trim(9)
    assert (history.before(9), history.last) == ("a", "c")
    history.trim(20)
    assert (history.before(9), history.last) == (None, "c")


def test_the_records_read_back_from_log_and_snapshot() -> None:
    voters = VoterSet([node(1), node(2)])
    records = [kraft_version(1, 5), voters_record(voters, 5)]
    batch = build_batch(records, base_offset=4, control=True)
    assert list(read_control(batch, parse_header(batch))) == [(4, 1), (5, voters)]
    scan = LogScan()
    scan.log_batch(batch)
    scan.log_batch(build_batch([voters_record(voters.without(1), 6)], base_offset=31, control=True))
    assert scan.versions == [(4, 1)]
    assert scan.voter_sets == [(5, voters), (31, voters.without(1))]
