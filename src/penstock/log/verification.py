"""What keeps a transactional batch out of a log until the coordinator knows its transaction.

A producer may continue to write after the coordinator has ended its transaction. A batch that then
began another transaction would never be ended: the coordinator does not know it, and the last
stable offset would never move (KIP-890). So the first batch of a producer's transaction in a
partition is verified with the coordinator. A marker may arrive between that and the append; the
guard detects it. It is one object, compared by identity, and every marker, new epoch and first
append replaces it, so that an append with an old guard is refused.

While a producer is being verified, a batch that was refused for a temporary reason will be sent
again. `lowest_sequence` refuses later batches until then, or the earlier one would never fit. Where
the log knows the producer, its sequence numbers do that.

Owned by the loop's thread.
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """One verification of one producer in one partition, from its start to the first append."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "starts_at_zero")

    def __init__(self, epoch: int, sequence: int, created_ms: int, *, starts_at_zero: bool) -> None:
        """`starts_at_zero`: each transaction has an epoch of its own (transactions version 2), so
        a producer of which nothing is known begins with sequence 0.
        """
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.created_ms = created_ms
        self.starts_at_zero = starts_at_zero


NOT_ASKED: Final = VerificationGuard(-1, -1, 0, starts_at_zero=False)
"""In the place of a guard: the append needs no verification."""
