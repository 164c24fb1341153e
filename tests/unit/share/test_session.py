"""Share sessions: epochs, partitions, connections, limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.base.errors import ApiError, ErrorCode
from penstock.share.session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    ShareSession,
    ShareSessions,
    epoch_after,
    rotated,
)

T, U = bytes(15) + b"\x01", bytes(15) + b"\x02"
A, B, C = (T, 0), (T, 1), (U, 0)


def refused(code: ErrorCode, call: Any, *arguments: Any, **named: Any) -> None:
    with pytest.raises(ApiError) as error:
        call(*arguments, **named)
    assert error.value.code is code


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(sessions_max=3)


def test_epochs_follow_each_other(sessions: ShareSessions) -> None:
    session = sessions.opened("g", "m", [A], "c")
    for epoch in (1, 2, 3):
        assert sessions.updated("g", "m", epoch) is session
        assert session.awaits(epoch)
        assert not session.awaits(epoch - 1)
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, sessions.updated, "g", "m", 3)
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, sessions.updated, "g", "m", 5)
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, sessions.acknowledged, "g", "m", 9)
    assert sessions.acknowledged("g", "m", 4) is session
    assert session.epoch == 5


def test_after_the_last_epoch_comes_one() -> None:
    assert [epoch_after(e) for e in (0, 1, EPOCH_MAX - 1, EPOCH_MAX, -1)] == [
        1,
        2,
        EPOCH_MAX,
        1,
        FINAL_EPOCH,
    ]


def test_who_has_no_session(sessions: ShareSessions) -> None:
    sessions.opened("g", "m", [], "c")
    unknown = ErrorCode.SHARE_SESSION_NOT_FOUND
    for group, member in (("g", "n"), ("h", "m")):
        refused(unknown, sessions.updated, group, member, 1)
        refused(unknown, sessions.acknowledged, group, member, 1)
        refused(unknown, sessions.acknowledged, group, member, FINAL_EPOCH)
        refused(unknown, sessions.ending, group, member)
        refused(unknown, sessions.closed, group, member)
        assert sessions.get(group, member) is None


def test_a_session_does_not_begin_with_acknowledgements(sessions: ShareSessions) -> None:
    old = sessions.opened("g", "m", [A], "c")
    refused(ErrorCode.INVALID_REQUEST, sessions.opened, "g", "m", [B], "c", acknowledges=True)
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, sessions.acknowledged, "g", "m", 0)
    assert sessions.get("g", "m") is old


def test_epoch_zero_replaces(sessions: ShareSessions) -> None:
    old = sessions.opened("g", "m", [A, B], "c")
    sessions.updated("g", "m", 1)
    new = sessions.opened("g", "m", [B], "d")
    assert sessions.get("g", "m") is new is not old
    assert new.epoch == 1
    assert (len(sessions), sessions.partitions) == (1, 1)
    assert sessions.connection_lost("c") == []
    assert sessions.connection_lost("d") == [new]


def test_the_limit(sessions: ShareSessions) -> None:
    for member in "abc":
        sessions.opened("g", member, [], member)
    refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, sessions.opened, "g", "d", [], "d")
    sessions.opened("g", "c", [A], "c")
    sessions.closed("g", "a")
    sessions.opened("g", "d", [], "d")
    assert len(sessions) == 3


def test_partitions_join_and_are_forgotten(sessions: ShareSessions) -> None:
    session = sessions.opened("g", "m", [A], "c")
    sessions.opened("g", "n", [A, C], "d")
    assert sessions.members_of("g", *A) == 2
    # C joins and is forgotten at once, as when it only has acknowledgements.
    sessions.updated("g", "m", 1, [A, B, C], [C, A])
    assert list(session) == [B]
    assert (sessions.members_of("g", *A), sessions.members_of("g", *B)) == (1, 1)
    assert (sessions.members_of("g", *C), sessions.members_of("h", *B)) == (1, 0)
    assert sessions.partitions == 3
    sessions.closed("g", "n")
    assert (sessions.members_of("g", *A), sessions.sessions_of("g")) == (0, 1)
    sessions.invariants()


def test_a_refused_request_changes_nothing(sessions: ShareSessions) -> None:
    session = sessions.opened("g", "m", [A], "c")
    refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, sessions.updated, "g", "m", 2, [B], [A])
    assert list(session) == [A]


def test_the_connection_ends_all_its_sessions(sessions: ShareSessions) -> None:
    mine = [sessions.opened("g", member, [A], "c") for member in "ab"]
    other = sessions.opened("g", "c", [A], "d")
    assert sessions.connection_lost("c") == mine
    assert sessions.connection_lost("c") == []
    assert sessions.evicted == 2
    assert sessions.get("g", "c") is other
    sessions.invariants()


def test_each_request_begins_with_another_partition(sessions: ShareSessions) -> None:
    session = sessions.opened("g", "m", [A, B, C], "c")
    assert session.in_turn(0) == [A, B, C]
    assert session.in_turn(1) == [B, C, A]
    assert session.in_turn(5) == [C, A, B]
    assert session.in_turn(FINAL_EPOCH) == [A, B, C]
    assert rotated([], 7) == []


def test_an_answer_names_what_there_is_to_say(sessions: ShareSessions) -> None:
    session = sessions.opened("g", "m", [A], "c")
    assert not session.must_answer(A, records=False, error=False)
    sessions.updated("g", "m", 1, [B])
    assert session.must_answer(B, records=False, error=False)
    assert not session.must_answer(B, records=False, error=False)
    assert session.must_answer(B, records=True, error=False)
    assert not session.must_answer(B, records=False, error=False)
    # An error is told while it lasts, and so is its end.
    assert session.must_answer(A, records=False, error=True)
    assert session.must_answer(A, records=False, error=True)
    assert session.must_answer(A, records=False, error=False)
    assert not session.must_answer(A, records=False, error=False)
    # What is not of the session is named if there is anything.
    assert session.must_answer(C, records=False, error=True)
    assert not session.must_answer(C, records=False, error=False)
    assert C not in session


def test_what_had_records_is_served_last(sessions: ShareSessions) -> None:
    session = sessions.opened("g", "m", [A, B, C], "c")
    session.must_answer(A, records=True, error=False)
    session.must_answer(B, records=False, error=True)
    assert list(session) == [B, C, A]


class Sessions(RuleBasedStateMachine):
    """Sessions at random, against a list of what each should be."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = ShareSessions(sessions_max=4)
        self.known: dict[tuple[str, str], tuple[ShareSession, int, set[Any], int]] = {}

    keys = st.tuples(st.sampled_from("gh"), st.sampled_from("mno"))
    places = st.lists(st.sampled_from([A, B, C]), max_size=3)
    connections = st.integers(1, 3)

    @rule(key=keys, wanted=places, connection=connections)
    def open(self, key: tuple[str, str], wanted: list[Any], connection: int) -> None:
        full = len(self.known) - (key in self.known) >= 4
        self.known.pop(key, None)
        if full:
            code = ErrorCode.SHARE_SESSION_LIMIT_REACHED
            refused(code, self.sessions.opened, *key, wanted, connection)
        else:
            session = self.sessions.opened(*key, wanted, connection)
            self.known[key] = session, 1, set(wanted), connection

    @rule(key=keys, wanted=places, forgotten=places, off=st.sampled_from([0, 0, 0, 1]))
    def update(self, key: tuple[str, str], wanted: Any, forgotten: Any, off: int) -> None:
        if key not in self.known:
            refused(ErrorCode.SHARE_SESSION_NOT_FOUND, self.sessions.updated, *key, 1)
            return
        session, epoch, places, connection = self.known[key]
        arguments = (*key, epoch + off, wanted, forgotten)
        if off:
            code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
            refused(code, self.sessions.updated, *arguments)
        else:
            assert self.sessions.updated(*arguments) is session
            places = (places | set(wanted)) - set(forgotten)
            self.known[key] = session, epoch + 1, places, connection

    @rule(key=keys)
    def close(self, key: tuple[str, str]) -> None:
        if key in self.known:
            assert self.sessions.closed(*key) is self.known.pop(key)[0]

    @rule(connection=connections)
    def lose(self, connection: int) -> None:
        ended = [key for key, row in self.known.items() if row[3] == connection]
        assert [s.key for s in self.sessions.connection_lost(connection)] == sorted(ended)
        for key in ended:
            del self.known[key]

    @invariant()
    def agrees(self) -> None:
        self.sessions.invariants()
        assert len(self.sessions) == len(self.known)
        for key, (session, epoch, places, _) in self.known.items():
            assert self.sessions.get(*key) is session
            assert (session.epoch, set(session)) == (epoch, places)
        for group in "gh":
            rows = [row for key, row in self.known.items() if key[0] == group]
            assert self.sessions.sessions_of(group) == len(rows)
            for place in (A, B, C):
                members = sum(place in row[2] for row in rows)
                assert self.sessions.members_of(group, *place) == members


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
