"""The groups that this node coordinates, by protocol and state, counted at each scrape.

Counts that are kept would have to follow every change of every group; a scrape looks at each group
instead, a part of them at a time (`COUNTED_PER_PART`), so that requests are served in between.
Rebalances are counted when they happen; their number does not fall when a shard moves away. Owned
by the event loop's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.coordinator.classic.states import State
from penstock.coordinator.group import CLASSIC, CONSUMER, SHARE, STREAMS
from penstock.observe.metrics import Reading, Registry
from penstock.observe.table import GROUPS, GROUPS_MEMBERS, GROUPS_REBALANCES

if TYPE_CHECKING:
    from penstock.coordinating.group_coordinator import GroupCoordinator

COUNTED_PER_PART: Final = 1_000
"""Groups and members between two pauses: about a millisecond. A group is counted as a whole."""

STATES: Final = tuple(
    [(CLASSIC, state.value) for state in State if state is not State.DEAD]
    + [(CONSUMER, state) for state in ("Empty", "Assigning", "Reconciling", "Stable")]
    + [(SHARE, state) for state in ("Empty", "Stable")]
    + [(STREAMS, state) for state in ("Empty", "NotReady", "Assigning", "Reconciling", "Stable")]
)
"""What is always shown, so that a state that nobody is in is a 0 and not a gap."""


class GroupMetrics:
    def __init__(self, registry: Registry, groups: GroupCoordinator) -> None:
        self._groups = groups
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        states = Counter(dict.fromkeys(STATES, 0))
        members = {CLASSIC: 0, CONSUMER: 0, SHARE: 0, STREAMS: 0}
        counted = 0
        for group in self._groups.loaded_groups():
            states[group.group_type, group.state_name] += 1
            members[group.group_type] += group.member_count
            counted += 1 + group.member_count
            if counted >= COUNTED_PER_PART:
                counted = 0
                yield Reading(GROUPS, [])
        yield Reading(GROUPS, [GROUPS.sample(n, *state) for state, n in states.items()])
        by_protocol = [GROUPS_MEMBERS.sample(n, protocol) for protocol, n in members.items()]
        yield Reading(GROUPS_MEMBERS, by_protocol)
        rebalances = self._groups.rebalances
        counts = {
            CLASSIC: rebalances.classic,
            CONSUMER: rebalances.consumer,
            SHARE: rebalances.share,
            STREAMS: rebalances.streams,
        }
        by_protocol = [GROUPS_REBALANCES.sample(n, protocol) for protocol, n in counts.items()]
        yield Reading(GROUPS_REBALANCES, by_protocol)
