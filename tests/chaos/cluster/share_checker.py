"""Judges what a share group was given and said; a part of the table of `checker`.

A client's library asks for messages before they are polled, and its answers may be late: what a
poll returns was acquired up to `ASKED_SECONDS_MAX` before. Who holds a message is known to the
leader alone, so while a fault lasts a second member may be given it (as in Kafka).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from .history import Fault, Given, History, Partition, Settled

ACCEPT, RELEASE, REJECT = "accept", "release", "reject"
DONE: Final = frozenset({ACCEPT, REJECT})
DELIVERIES_MAX: Final = 10
"""The group's limit in chaos runs: nothing is to reach it by bad luck."""
LOCK_SECONDS: Final = 30.0
ASKED_SECONDS_MAX: Final = 10.0
Place = tuple[Partition, int]


def share_lost(history: History) -> Iterator[str]:
    """What is in the log, a member of the share group has accepted or rejected."""
    if not history.of(Given):
        return
    done = {(s.partition, s.offset) for s in history.of(Settled) if s.kind in DONE}
    for partition, records in history.final.items():
        for offset, value in records:
            if (partition, offset) not in done:
                yield f"{partition}@{offset}: nobody in the share group has finished {value}"


def share_unlike(history: History) -> Iterator[str]:
    """A share group is given what is in the log."""
    stored = {partition: dict(records) for partition, records in history.final.items()}
    for given in history.of(Given):
        found = stored.get(given.partition, {}).get(given.offset)
        if found != given.value:
            yield (
                f"{given.partition}@{given.offset}: {given.member} was given {given.value}, "
                f"{found} is stored"
            )


def share_done_again(history: History) -> Iterator[str]:
    """What was accepted or rejected, and answered, is never given again."""
    done: dict[Place, Settled] = {}
    for said in history.of(Settled):
        if said.at is not None and said.kind in DONE:
            done.setdefault((said.partition, said.offset), said)
    for given in history.of(Given):
        first = done.get((given.partition, given.offset))
        if first is not None and first.at is not None:
            asked = given.called - ASKED_SECONDS_MAX
            if asked > first.at:
                yield (
                    f"{given.partition}@{given.offset}: {given.member} was given it at "
                    f"{given.at:.3f}; {first.member}'s {first.kind} was answered at {first.at:.3f}"
                )


def share_too_often(history: History) -> Iterator[str]:
    """No message is given more often than the limit says."""
    for given in history.of(Given):
        if not 1 <= given.count <= DELIVERIES_MAX:
            yield (
                f"{given.partition}@{given.offset}: {given.member} was given it for time "
                f"{given.count}"
            )


def share_held_twice(history: History) -> Iterator[str]:
    """While no fault lasts a message is given to nobody until its member has spoken of it."""
    spoken: dict[tuple[str, Place], list[float]] = defaultdict(list)
    for said in history.of(Settled):
        spoken[said.member, (said.partition, said.offset)].append(said.called)
    by_place: dict[Place, list[Given]] = defaultdict(list)
    for given in history.of(Given):
        by_place[given.partition, given.offset].append(given)
    faults = history.of(Fault)
    for place, deliveries in by_place.items():
        deliveries.sort(key=lambda given: given.at)
        for first, second in itertools.pairwise(deliveries):
            until = min(
                [t for t in spoken[first.member, place] if t >= first.at],
                default=first.at + LOCK_SECONDS - ASKED_SECONDS_MAX,
            )
            since = first.called - ASKED_SECONDS_MAX
            quiet = not any(f.began <= second.at and f.recovered >= since for f in faults)
            if quiet and second.at < until:
                yield (
                    f"{place[0]}@{place[1]}: {second.member} was given it at {second.at:.3f}, "
                    f"while {first.member} had it from {first.at:.3f} to {until:.3f}"
                )


SHARE_CHECKS: Final[dict[str, Callable[[History], Iterator[str]]]] = {
    "lost to a share group": share_lost,
    "unlike in a share group": share_unlike,
    "finished and given again": share_done_again,
    "given too often": share_too_often,
    "held by two members": share_held_twice,
}
