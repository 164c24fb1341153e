"""Share groups in a shard: what the log says is what memory says, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.coordinator.group import Committer
from penstock.wire.messages.list_groups import ListGroupsRequest
from unit.coordinator_consumer.rig import GROUP
from unit.coordinator_share.rig import ShareRig

MEMBERS, TOPICS = ("m1", "m2", "m3"), ("a", "b")
step_of = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(MEMBERS), st.sampled_from([["a"], ["a", "b"]])),
    st.tuples(st.just("beat"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("leave"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("topic"), st.sampled_from(TOPICS), st.integers(1, 4)),
    st.tuples(st.just("drop"), st.sampled_from(TOPICS)),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([500, 5_000, 40_000])),
    st.tuples(st.just("fail-over")),
)


def take(rig: ShareRig, epochs: dict[str, int], step: tuple[Any, ...]) -> None:
    what = step[0]
    if what == "join":
        epochs[step[1]] = rig.share_join(step[1], step[2]).member_epoch
    elif what in ("beat", "leave"):
        epoch = -1 if what == "leave" else epochs.get(step[1], 1)
        answer = rig.share_beat(step[1], epoch)
        if not answer.error_code:
            epochs[step[1]] = answer.member_epoch
    elif what == "topic":
        count = rig.topics.counts.get(step[1])
        if count is None:
            rig.create(step[1], step[2])
        elif count < step[2]:
            rig.grow(step[1], step[2])
    elif what == "drop" and step[1] in rig.topics.counts:
        rig.delete(step[1])
    elif what == "answer":
        rig.answer({("a", 0)} if step[1] and "a" in rig.topics.counts else None)
    elif what == "wait":
        rig.advance(step[1])
    elif what == "fail-over":
        rig.fail_over()


@settings(deadline=None)
@given(st.lists(step_of, max_size=40), st.sampled_from([0, 1_000]))
def test_the_log_says_what_memory_says(steps: list[tuple[Any, ...]], interval_ms: int) -> None:
    rig = ShareRig(share_assignment_interval_ms=interval_ms, share_session_timeout_ms=10_000)
    epochs: dict[str, int] = {}
    for step in steps:
        take(rig, epochs, step)
        rig.check_replay()
        rig.shard.invariants()


@settings(deadline=None)
@given(st.lists(step_of, max_size=40))
def test_in_the_end_everything_is_shared_out(steps: list[tuple[Any, ...]]) -> None:
    rig = ShareRig(share_session_timeout_ms=10_000)
    epochs: dict[str, int] = {}
    for step in [*steps, ("topic", "a", 4), ("join", "m1", ["a"])]:
        take(rig, epochs, step)
    for _ in range(12):  # longer than the share coordinator is waited for
        rig.advance(9_000)
        for member in rig.share.engine.roster.members:
            take(rig, epochs, ("beat", member))
            take(rig, epochs, ("answer", False))
    roster = rig.share.engine.roster
    given_ = {(rig.topics.name_of(id_), n) for m in roster.members.values()
              for id_, n in m.progress.assigned}  # fmt: skip
    assert {("a", number) for number in range(rig.topics.counts["a"])} <= given_
    assert all(m.progress.epoch == roster.epoch for m in roster.members.values())
    written = len(rig.log)
    take(rig, epochs, ("beat", "m1"))
    assert len(rig.log) == written, "a heartbeat that changes nothing writes nothing"


def test_a_full_group_takes_nobody_else() -> None:
    rig = ShareRig(group_share_max_size=1)
    rig.create("t", 1)
    assert rig.share_join("m1", ["t"]).error_code == 0
    refused = rig.share_join("m2", ["t"])
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.share_join("m1", ["t"]).error_code == 0


def test_assignments_keep_their_interval() -> None:
    rig = ShareRig(share_assignment_interval_ms=1_000, share_heartbeat_interval_ms=7_000)
    rig.create("t", 1)
    joined = rig.share_join("m1", ["t"])
    assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 7_000)
    rig.answer()
    waits = rig.share_beat("m1", 2)
    assert (waits.member_epoch, waits.assignment) == (2, None)
    assert rig.share.engine.roster.epoch == 3
    rig.advance(1_000)
    given_ = rig.share_beat("m1", 2)
    assert (given_.member_epoch, rig.given(given_)) == (3, {("t", 0)})


def test_a_group_without_members_stays() -> None:
    rig = ShareRig()
    rig.create("t", 1)
    rig.share_join("m1", ["t"])
    rig.share_beat("m1", -1)
    assert not rig.shard.expire(rig.now_ms + 10**12).records
    listed = rig.send(ListGroupsRequest(types_filter=["SHARE"], states_filter=["empty"]), 5)
    assert [(g.group_id, g.group_type) for g in listed.groups] == [(GROUP, "share")]


@pytest.mark.parametrize("transactional", [True, False])
def test_offsets_are_not_committed_for_it(transactional: bool) -> None:
    rig = ShareRig()
    rig.create("t", 1)
    rig.share_join("m1", ["t"])
    committer = Committer("", None, -1, 9, transactional)
    assert rig.share.validate_offset_commit(committer, []) == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_answer_for_a_group_that_is_gone_changes_nothing() -> None:
    rig = ShareRig()
    assert not rig.shard.initialized("nobody", [(bytes(16), 0)], [], rig.now_ms)
