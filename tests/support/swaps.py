"""The swap of a compacted segment, step by step in one thread."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.log.log import Log


def swap_in(log: Log, base_offset: int, replaced: Iterable[int]) -> None:
    """All steps of the swap, one after the other."""
    swap = log.swap_begin(base_offset, replaced)
    swap.prepare()
    assert swap.install()
    swap.sync()
    swap.settle()
    swap.sync()
    swap.end()
