"""The loop stays awake after answers for as long as requests keep coming soon after them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.net import busy_poll
from penstock.net.busy_poll import (
    ANSWERS_PER_TURN_MAX,
    CREDIT_MAX,
    IN_VAIN_COSTS,
    TRIED_AGAIN_AFTER,
    BusyPoll,
)

FOR_US = 50


class Turns:
    """A loop that is turned by hand, and its time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def turn(self, after_us: int) -> None:
        self.now_ns += after_us * 1_000
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    turns = Turns()
    monkeypatch.setattr(busy_poll, "monotonic_ns", lambda: turns.now_ns)
    return turns


def poll_of(turns: Turns, for_us: int = FOR_US) -> BusyPoll:
    return BusyPoll(cast("asyncio.AbstractEventLoop", cast("Any", turns)), for_us)


def in_vain(poll: BusyPoll, turns: Turns) -> bool:
    """An answer after which nothing comes; whether it was looked for."""
    poll.answered(turns.now_ns)
    looked = poll.awake
    turns.turn(FOR_US + 1)
    assert not poll.awake
    assert not turns.ready
    return looked


def test_every_answer_begins_the_time_anew(turns: Turns) -> None:
    poll = poll_of(turns)
    for _ in range(3):
        poll.answered(turns.now_ns)
        turns.turn(FOR_US - 1)
        assert poll.awake
        assert len(turns.ready) == 1
    turns.turn(2)
    assert not poll.awake
    assert not turns.ready


def test_it_can_be_switched_off(turns: Turns) -> None:
    poll = poll_of(turns, 0)
    poll.answered(turns.now_ns)
    assert not poll.awake
    assert not turns.ready


def test_it_is_given_up_when_nothing_comes_and_tried_again_now_and_then(turns: Turns) -> None:
    poll = poll_of(turns)
    looked = [in_vain(poll, turns) for _ in range(10 * TRIED_AGAIN_AFTER)]
    at_first = CREDIT_MAX // IN_VAIN_COSTS
    assert looked[:at_first] == [True] * at_first
    assert looked[at_first : at_first + TRIED_AGAIN_AFTER] == [False] * TRIED_AGAIN_AFTER
    assert looked[at_first + TRIED_AGAIN_AFTER]
    assert 8 <= sum(looked[at_first:]) <= 10


def test_answers_of_the_same_turn_are_not_taken_for_what_came_meanwhile(turns: Turns) -> None:
    poll = poll_of(turns)
    for _ in range(CREDIT_MAX // IN_VAIN_COSTS):
        for _ in range(ANSWERS_PER_TURN_MAX):
            poll.answered(turns.now_ns)
        assert poll.awake
        turns.turn(FOR_US + 1)
    assert not in_vain(poll, turns)


def test_a_busy_loop_does_not_stay_awake_for_it(turns: Turns) -> None:
    poll = poll_of(turns)
    for _ in range(ANSWERS_PER_TURN_MAX + 1):
        poll.answered(turns.now_ns)
    turns.turn(1)
    assert not poll.awake
    assert not turns.ready


def test_a_client_that_comes_back_soon_is_noticed(turns: Turns) -> None:
    poll = poll_of(turns)
    while in_vain(poll, turns):
        pass
    for _ in range(TRIED_AGAIN_AFTER + 1):
        poll.answered(turns.now_ns)
    assert poll.awake
    turns.turn(1)
    for _ in range(IN_VAIN_COSTS + 1):
        poll.answered(turns.now_ns)
        turns.turn(1)
    turns.turn(FOR_US + 1)
    assert in_vain(poll, turns), "it has paid, so it is tried at the next answer too"
