"""The states of a transaction and the table of moves between them.

Everything that decides whether a transaction may go from one state to another is in `MOVES`. The
values are the names that DescribeTransactions and ListTransactions show; `STATUS` has the numbers
under which the log keeps them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    EMPTY = "Empty"
    """A producer has the transactional id; nothing is in a transaction."""
    ONGOING = "Ongoing"
    """The transaction is open: it takes partitions, and its time is running."""
    PREPARE_COMMIT = "PrepareCommit"
    """It will be committed in any case; markers are being written to its partitions."""
    PREPARE_ABORT = "PrepareAbort"
    """It will be aborted in any case; markers are being written to its partitions."""
    COMPLETE_COMMIT = "CompleteCommit"
    """All its partitions know that it is committed."""
    COMPLETE_ABORT = "CompleteAbort"
    """All its partitions know that it is aborted."""
    DEAD = "Dead"
    """The transactional id has expired; passed through, never kept."""
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """The producer is being fenced; passed through on the way to PrepareAbort, never kept."""


MOVES: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset(
        {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}
    ),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
}
"""From each state, the states that may follow it. PrepareAbort without Ongoing is the abort of a
transaction of version 2 that nothing was put into.
"""

PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""Decided and not yet complete: other requests are told to retry."""
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open: the next may begin, and the transactional id may expire."""
PASSED_THROUGH: Final = frozenset({State.DEAD, State.PREPARE_EPOCH_FENCE})
"""Never between two events, and never in the log."""

STATUS: Final[dict[State, int]] = {
    State.EMPTY: 0,
    State.ONGOING: 1,
    State.PREPARE_COMMIT: 2,
    State.PREPARE_ABORT: 3,
    State.COMPLETE_COMMIT: 4,
    State.COMPLETE_ABORT: 5,
    State.DEAD: 6,
    State.PREPARE_EPOCH_FENCE: 7,
}
BY_STATUS: Final = {status: state for state, status in STATUS.items()}
BY_NAME: Final = {state.value: state for state in State}
