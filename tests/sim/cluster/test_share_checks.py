"""The checks of share groups can fail: a good history passes, and each bad one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.coordinating.share_coordinator import ShareCoordinator
from penstock.coordinator.share_state.records import ShareSnapshotValue, ShareUpdateValue
from penstock.metadata.names import SHARE_STATE_TOPIC
from penstock.partitions.partition import Partition
from penstock.share.types import ShareKey
from unit.serving.rig import running, until

from .checks import Violation
from .share_history import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    DeadLetter,
    Receipt,
    ShareHistory,
    SharePlace,
    Terms,
)
from .share_observer import before_pruning
from .share_states import Known, StateTopic, add, check_equal

P = SharePlace("s", bytes(16), 0)
LOCK_S, LIMIT = 10.0, 3
LIFE, SESSION = 7, 8


def history(alive: bool = True) -> ShareHistory:
    made = ShareHistory(lambda place, receipt: alive)
    made.terms["s"] = Terms(LOCK_S, LIMIT, dead_letters=True)
    return made


def by(member: str, at: float = 1.0, life: int = LIFE) -> Receipt:
    """A fetch of this time, and its answer a second later."""
    return Receipt(member, life, SESSION, at, at + 1.0)


def said(made: ShareHistory, kind: int, member: str = "a", at: float = 3.0) -> None:
    """One record, answered without an error a second later."""
    made.saying(P, {0: kind})
    made.answered(P, {0: kind}, member, at, at + 1.0)


# -- good histories --------------------------------------------------------------------------------


def test_a_record_goes_from_hand_to_hand_and_is_done() -> None:
    made = history()
    made.given(P, 0, 1, by("a"))
    said(made, RELEASE)
    made.given(P, 0, 2, by("b", at=5.0))
    said(made, ACCEPT, "b", at=7.0)
    made.persisted(P, 0, 0, ACKNOWLEDGED, 2)
    made.check_complete(P, [0], 1)
    made.check_archived(P, [0])
    made.check_states(P, {0: (ACKNOWLEDGED, 2)})


@pytest.mark.parametrize(
    ("alive", "life", "at"),
    [(True, LIFE, 11.0), (True, LIFE + 1, 3.0), (True, 0, 3.0), (False, LIFE, 3.0)],
    ids=["its lock is over", "another leader", "nobody knows which", "its session is over"],
)
def test_a_record_may_be_given_again(alive: bool, life: int, at: float) -> None:
    made = history(alive)
    made.given(P, 0, 1, by("a"))
    made.given(P, 0, 2, by("b", at, life))


def test_who_is_lost_holds_nothing() -> None:
    made = history()
    made.given(P, 0, 1, by("a"))
    made.gone(P, [0], "a")
    made.given(P, 0, 2, by("b", at=3.0))


def test_what_was_given_too_often_may_be_archived() -> None:
    made = history()
    for count in range(1, LIMIT + 1):
        made.given(P, 0, count, by("a", at=20.0 * count))
    made.persisted(P, 0, 0, ARCHIVED, LIMIT)
    made.check_complete(P, [0], 1)
    made.check_archived(P, [0])


def test_fetches_without_an_answer_may_have_been_deliveries() -> None:
    made = history()
    made.given(P, 0, 1, by("a"))
    for at in (20.0, 40.0):
        made.unanswered_fetch(P, at)
    made.check_complete(P, [0], 1)


def test_what_is_not_there_may_be_archived() -> None:
    made = history()
    made.persisted(P, 0, 5, ARCHIVED, 0)
    made.check_archived(P, [6])


def test_who_does_not_hold_all_of_it_may_be_refused() -> None:
    made = history()
    made.given(P, 0, 1, by("a"))
    made.given(P, 1, 1, by("a", life=0))
    had = {offset: made.of(P, offset).held for offset in (0, 1)}
    made.saying(P, {0: ACCEPT, 1: ACCEPT})
    made.refused(P, {0: ACCEPT, 1: ACCEPT}, had, "INVALID_RECORD_STATE", 3.0)  # type: ignore[arg-type]


def resting(alive: bool = True) -> ShareHistory:
    """Records rest for four seconds after each delivery."""
    made = history(alive)
    made.terms["s"] = made.terms["s"]._replace(rest_s=lambda count: 4.0 * count)
    return made


def test_a_record_rests_and_comes_back() -> None:
    made = resting()
    made.given(P, 0, 1, by("a"))
    said(made, RELEASE)
    made.given(P, 0, 2, by("b", at=6.5))
    made.given(P, 0, 3, by("b", at=24.5))


def test_over_a_fail_over_it_may_come_back_early() -> None:
    made = resting()
    made.given(P, 0, 1, by("a"))
    said(made, RELEASE)
    made.given(P, 0, 2, by("b", at=4.5, life=LIFE + 1))


def test_each_record_is_accepted_or_has_a_dead_letter() -> None:
    made = history()
    made.given(P, 0, 1, by("a"))
    said(made, REJECT)
    made.persisted(P, 0, 0, ARCHIVING, 1)
    made.of(P, 1).said.add(ACCEPT)
    letters = [DeadLetter(0, 1, "rejected"), DeadLetter(2, LIMIT, "limit")]
    made.check_dead_letters(P, letters, [0, 1, 2])


# -- bad ones --------------------------------------------------------------------------------------


def held_twice(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    made.given(P, 0, 2, by("b", at=3.0))


def held_twice_in_reverse(made: ShareHistory) -> None:
    """The answer that was given first is the last to arrive."""
    made.given(P, 0, 2, by("b", at=3.0))
    made.given(P, 0, 1, Receipt("a", LIFE, SESSION, 2.9, 6.0))


def held_twice_when_renewed(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, RENEW, at=9.0)
    made.given(P, 0, 2, by("b", at=12.0))


def done_and_given(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, ACCEPT)
    made.given(P, 0, 2, by("b", at=5.0, life=LIFE + 1))


def rejected_and_given(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, REJECT)
    made.given(P, 0, 2, by("b", at=5.0, life=LIFE + 1))


def gap_and_given(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, GAP)
    made.given(P, 0, 2, by("b", at=5.0))


def given_too_often(made: ShareHistory) -> None:
    made.given(P, 0, LIMIT + 1, by("a"))


def released_at_the_limit_and_given(made: ShareHistory) -> None:
    made.given(P, 0, LIMIT, by("a"))
    said(made, RELEASE)
    made.given(P, 0, 1, by("b", at=5.0, life=LIFE + 1))


def counted_twice(made: ShareHistory) -> None:
    made.given(P, 0, 2, by("a"))
    made.given(P, 0, 2, by("b", at=20.0))


def counted_back(made: ShareHistory) -> None:
    made.given(P, 0, 2, by("a"))
    made.given(P, 0, 1, by("b", at=20.0))


def release_forgotten(made: ShareHistory) -> None:
    made.given(P, 0, 2, by("a"))
    said(made, RELEASE)
    made.given(P, 0, 1, by("b", at=5.0, life=LIFE + 1))


def refused_to_the_holder(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    held = made.of(P, 0).held
    assert held is not None
    made.saying(P, {0: ACCEPT})
    made.refused(P, {0: ACCEPT}, {0: held}, "INVALID_RECORD_STATE", 3.0)


def never_finished(made: ShareHistory) -> None:
    made.check_complete(P, [0, 1], 1)


def never_given(made: ShareHistory) -> None:
    made.check_complete(P, [0], 1)


def given_and_lost(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, RELEASE)
    made.unanswered_fetch(P, 6.0)
    made.check_complete(P, [0], 1)


def acknowledged_by_nobody(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    made.persisted(P, 0, 0, ACKNOWLEDGED, 1)


def archived_for_nothing(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    made.persisted(P, 0, 0, ARCHIVED, 1)
    made.check_archived(P, [0])


def persisted_too_often(made: ShareHistory) -> None:
    made.persisted(P, 0, 0, ARCHIVED, LIMIT + 1)


def free_at_the_limit(made: ShareHistory) -> None:
    made.persisted(P, 0, 0, AVAILABLE, LIMIT)


def done_and_free(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, ACCEPT)
    made.check_states(P, {0: (AVAILABLE, 1)})


def back_before_its_rest(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    said(made, RELEASE)
    made.given(P, 0, 2, by("b", at=4.5))


def back_before_its_rest_when_its_lock_ran_out(made: ShareHistory) -> None:
    made.given(P, 0, 1, by("a"))
    made.given(P, 0, 2, by("b", at=12.0))


@pytest.mark.parametrize("bad", [back_before_its_rest, back_before_its_rest_when_its_lock_ran_out])
def test_a_rest_that_is_cut_short_is_refused(bad: Callable[[ShareHistory], None]) -> None:
    with pytest.raises(Violation, match="to rest for 4"):
        bad(resting())


@pytest.mark.parametrize(
    ("letters", "why"),
    [
        ([], "there is no dead letter"),
        ([DeadLetter(0, 1, "rejected")] * 2, "is there twice"),
        ([DeadLetter(0, LIMIT - 1, "limit")], "the limit is 3"),
        ([DeadLetter(0, 1, "rejected"), DeadLetter(1, 1, "rejected")], "nobody has rejected it"),
    ],
    ids=["lost", "doubled", "too early", "for nothing"],
)
def test_bad_dead_letters_are_refused(letters: list[DeadLetter], why: str) -> None:
    made = history()
    made.given(P, 0, 1, by("a"))
    said(made, REJECT)
    with pytest.raises(Violation, match=why):
        made.check_dead_letters(P, letters, [0])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (held_twice, "while a held it"),
        (held_twice_in_reverse, "while b held it"),
        (held_twice_when_renewed, "while a held it"),
        (done_and_given, "had finished it"),
        (rejected_and_given, "had finished it"),
        (gap_and_given, "had finished it"),
        (given_too_often, "the limit is 3"),
        (released_at_the_limit_and_given, "had finished it"),
        (counted_twice, "in the same life"),
        (counted_back, "had it for time 2"),
        (release_forgotten, "ended with a release"),
        (refused_to_the_holder, "held all of it"),
        (never_finished, "is not finished|is lost"),
        (never_given, "given 0 times of 3"),
        (given_and_lost, "given 1 times of 3"),
        (acknowledged_by_nobody, "nobody has accepted"),
        (archived_for_nothing, "nobody has rejected"),
        (persisted_too_often, "the limit is 3"),
        (free_at_the_limit, "may be given no more"),
        (done_and_free, "persisted as free"),
    ],
)
def test_a_bad_history_is_refused(bad: Callable[[ShareHistory], None], why: str) -> None:
    with pytest.raises(Violation, match=why):
        bad(history())


# -- the state topic -------------------------------------------------------------------------------

KEY = ShareKey(*P)


def snapshot(start: int) -> ShareSnapshotValue:
    return ShareSnapshotValue(start_offset=start, state_epoch=1, leader_epoch=2)


def test_records_of_the_state_topic_add_up() -> None:
    states: dict[ShareKey, Known] = {}
    add(states, KEY, snapshot(3))
    add(states, KEY, ShareUpdateValue(start_offset=-1, leader_epoch=-1))
    assert states == {KEY: Known(3, 2, 1)}
    add(states, KEY, None)
    add(states, KEY, ShareUpdateValue(start_offset=5, leader_epoch=4))
    assert states == {}


def test_a_state_that_was_pruned_away_is_missed() -> None:
    whole: dict[ShareKey, Known] = {}
    add(whole, KEY, snapshot(3))
    with pytest.raises(Violation, match="after pruning"):
        check_equal("after pruning", {}, whole)


def test_each_look_adds_what_is_new() -> None:
    topic = StateTopic()
    log = [(0, KEY, snapshot(3)), (1, KEY, ShareUpdateValue(start_offset=5, leader_epoch=-1))]
    assert [before and before.start for _, before, _ in topic.news(0, 0, log)] == [None, 3]
    assert list(topic.news(0, 0, log)) == []
    assert topic.states == {KEY: Known(5, 2, 1)}
    assert list(topic.news(0, 2, [*log, (2, KEY, None)])) == [(KEY, Known(5, 2, 1), None)]
    assert (topic.states, topic.seen_to(0), topic.seen_to(1)) == ({}, 3, 0)


def test_what_was_pruned_before_a_look_is_missed() -> None:
    """It may have been a tombstone: then a state would seem to be there for ever."""
    topic = StateTopic()
    list(topic.news(0, 0, [(0, KEY, snapshot(3))]))
    with pytest.raises(Violation, match="begins at 2 and was seen to 1"):
        list(topic.news(0, 2, []))


def test_what_waits_for_its_commit_is_looked_at_before_it_is_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone is committed, and pruned within the same turn of the loop."""
    monkeypatch.setattr(ShareCoordinator, "_action", ShareCoordinator._action)
    looks: list[tuple[int, int]] = []

    def look(partition: Partition) -> None:
        if partition.topic == SHARE_STATE_TOPIC:
            looks.append((partition.log.log_start_offset, partition.high_watermark))

    before_pruning(look)
    settings = {
        "log_flush_interval_messages": "1",
        "share_coordinator_state_topic_num_partitions": "1",
    }

    async def run() -> None:
        async with running(tmp_path, **settings) as rig:
            share, persister = (await rig.topic()).id, rig.broker.persister
            await persister.initialize("s", {(share, 0): (1, 0)})
            log = rig.broker.replicas.leader_of(SHARE_STATE_TOPIC, 0).log
            with rig.held_flushes() as flushed:
                deleted = asyncio.ensure_future(persister.delete("s", [(share, 0)]))
                await until(lambda: log.log_end_offset == 2)
                rig.broker.share_states.prune()
                assert looks == []
                flushed.set()
                await deleted
            assert log.log_start_offset == 2
            assert looks == [(0, 2)]

    asyncio.run(run())
