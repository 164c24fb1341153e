"""The states of a classic group and the table of moves between them.

Everything that decides whether a group may go from one state to another is in `MOVES`; the names
are those that ListGroups and DescribeGroups show.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    EMPTY = "Empty"
    """No members; the group is kept for its offsets and its protocol type."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: JoinGroups wait until all members have sent theirs or time is up."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: a new generation exists, its leader owes the assignment."""
    STABLE = "Stable"
    """Every member can have its assignment."""
    DEAD = "Dead"
    """Given up: deleted, or its partition has moved away."""


MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE, State.STABLE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset({State.DEAD}),
}
"""From each state, the states that may follow it."""

WITH_MEMBERS = frozenset({State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, State.STABLE})
"""States in which members are known, so that the group cannot be deleted."""
