"""From the seed to a list of faults, made before the run begins.

An episode strikes one node (two, when nothing can be lost by it; three, when another has what one
of them loses), lasts, ends, and is followed by a pause. What a loss of power may take is bounded by
one node at a time: such an episode waits until every replica is in sync again (`after_recovery`),
and so does the one that follows it. A second list, the weather, disturbs the network at the same
time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

KILL, POWER, STOP, PAUSE, WIPE = "kill", "power", "stop", "pause", "wipe"
ISOLATE, ONE_WAY, LINK, LOSSY, SLOW, RESET = "isolate", "one-way", "link", "lossy", "slow", "reset"
CLOCK, FULL_DISK, FSYNC_ERROR = "clock", "full-disk", "fsync-error"
ADMIN = "admin"
LAST_TWO = "last-two"
"""One is away, and of the two that are left in sync one loses power and the other is killed."""
ANEW = "anew"
"""A replica leaves the node and is made anew there, and then the node crashes (`anew`)."""

LOSES_DATA = frozenset({POWER, WIPE, FSYNC_ERROR, LAST_TWO, ANEW})
"""Faults after which a node may lack what it had acknowledged."""

SINGLE = {KILL: 4, POWER: 4, STOP: 2, PAUSE: 2, ISOLATE: 2, LOSSY: 2, SLOW: 1, RESET: 2, CLOCK: 1,
          FULL_DISK: 2}  # fmt: skip
CLUSTER = {KILL: 5, POWER: 4, STOP: 2, PAUSE: 4, WIPE: 1, ISOLATE: 4, ONE_WAY: 4, LINK: 4, LOSSY: 3,
           SLOW: 3, RESET: 3, CLOCK: 1, FULL_DISK: 2, FSYNC_ERROR: 1, ADMIN: 3,
           LAST_TWO: 2, ANEW: 5}  # fmt: skip
"""How often each fault comes, relative to the others."""
WEATHER = {PAUSE: 1, ISOLATE: 1, ONE_WAY: 2, LINK: 2, LOSSY: 3, SLOW: 2, RESET: 2}
"""Faults that lose nothing and may come on top of any other."""


@dataclass(frozen=True)
class Episode:
    kind: str
    victims: tuple[int, ...]
    lasts_s: float
    pause_s: float
    after_recovery: bool

    def __str__(self) -> str:
        who = ",".join(f"n{v}" for v in self.victims)
        wait = " when all is in sync" if self.after_recovery else ""
        return f"{self.kind} {who} for {self.lasts_s:.2f} s, pause {self.pause_s:.2f} s{wait}"


def weather(rng: random.Random, nodes: list[int]) -> list[Episode]:
    """A second list of faults, to come at the same time as the first; often there is none."""
    if len(nodes) == 1 or rng.random() < 0.6:
        return []
    kinds = list(WEATHER)
    return [
        Episode(
            rng.choices(kinds, [WEATHER[k] for k in kinds])[0],
            (rng.choice(nodes),),
            lasts_s=rng.choice((0.5, 2.0, 4.0)) * rng.uniform(0.5, 1.5),
            pause_s=rng.choice((0.5, 2.0, 6.0)) * rng.uniform(0.5, 1.5),
            after_recovery=False,
        )
        for _ in range(rng.randint(1, 5))
    ]


def schedule(rng: random.Random, nodes: list[int], episodes: int) -> list[Episode]:
    weights = SINGLE if len(nodes) == 1 else CLUSTER
    kinds = list(weights)
    plan: list[Episode] = []
    weak = False
    for _ in range(episodes):
        [kind] = rng.choices(kinds, [weights[k] for k in kinds])
        victims = [rng.choice(nodes)]
        loses = kind in LOSES_DATA
        if len(nodes) > 2 and kind in (KILL, PAUSE, ISOLATE) and rng.random() < 0.15 and not weak:
            victims.append(rng.choice([n for n in nodes if n not in victims]))
        elif kind == LAST_TWO:
            victims = rng.sample(nodes, 3)
        plan.append(
            Episode(
                kind,
                tuple(victims),
                lasts_s=rng.choice((0.05, 0.5, 2.0, 8.0)) * rng.uniform(0.5, 1.5),
                pause_s=rng.choice((0.0, 0.3, 2.0, 6.0)) * rng.uniform(0.5, 1.5),
                after_recovery=len(nodes) > 1 and (loses or weak),
            )
        )
        weak = loses
    return plan
