"""What keeps a transactional batch out of a log until the coordinator knows its transaction.

A producer may go on writing after its transaction was ended behind its back. A batch that then
began a transaction of its own would never be ended: the coordinator does not know of it, and the
last stable offset would stand still (KIP-890). So the first batch of a producer's transaction in a
partition is verified with the coordinator. Between that and the append a marker may come; the
guard tells: it is one object, compared by identity, and every marker, new epoch and first append
gives it up, so that an append that holds an old one is refused.

While a producer is being verified a batch of its that was refused for a passing reason will be
sent again. `lowest_sequence` keeps later ones out until then, or the earlier would never fit; where
the log knows the producer its sequences tell that by themselves.

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
