"""State batches put together: what a share-partition's leader writes, over what was written before.

A list of batches is sorted, without overlaps, and neighbours that say the same are one. Where a new
batch and an older one speak of the same record, the higher delivery count decides, then the higher
state (Kafka's rule): a record only moves on, so a write that arrives twice or late changes nothing.
A new batch that `replaces` stands over all that is older: its records were revived. In a list no
batch says so any more.
A list of thousands is common where records are acknowledged out of order: only what a new batch
touches is looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter

from penstock.share.types import StateBatch

_LAST_OFFSET = itemgetter(1)


def combined(
    batches: Sequence[StateBatch], newer: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """`batches`, a list as above, with `newer`, in any order, put over it; without what is below
    `start_offset` (-1: all is kept).
    """
    kept = _from(batches, start_offset)
    for batch in newer:
        if batch.last_offset >= start_offset:
            _put(kept, batch._replace(first_offset=max(batch.first_offset, start_offset)))
    return kept


def _from(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    if not batches or batches[0].first_offset >= start_offset:
        return list(batches)
    kept = list(batches[bisect_left(batches, start_offset, key=_LAST_OFFSET) :])
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept


def _put(batches: list[StateBatch], new: StateBatch) -> None:
    # From the neighbour to the left, which may say the same, to the one to the right.
    replaces, new = new.replaces, new._replace(replaces=False)
    low = bisect_left(batches, new.first_offset - 1, key=_LAST_OFFSET)
    high, offset = low, new.first_offset
    pieces: list[StateBatch] = []
    while high < len(batches) and batches[high].first_offset <= new.last_offset + 1:
        old = batches[high]
        high += 1
        if old.first_offset < new.first_offset:
            _join(pieces, old._replace(last_offset=min(old.last_offset, new.first_offset - 1)))
        if offset < old.first_offset:
            _join(pieces, _part(new, offset, old.first_offset - 1))
        first, last = max(offset, old.first_offset), min(old.last_offset, new.last_offset)
        if first <= last:
            wins = replaces or _rank(new) > _rank(old)
            _join(pieces, _part(new if wins else old, first, last))
            offset = last + 1
        if old.last_offset > new.last_offset:
            offset = new.last_offset + 1
            _join(pieces, old._replace(first_offset=max(old.first_offset, offset)))
    if offset <= new.last_offset:
        _join(pieces, _part(new, offset, new.last_offset))
    batches[low:high] = pieces


def _rank(batch: StateBatch) -> tuple[int, int, int]:
    return batch.delivery_count, batch.state, batch.cause


def _part(batch: StateBatch, first: int, last: int) -> StateBatch:
    return batch._replace(first_offset=first, last_offset=last)


def _join(pieces: list[StateBatch], next_: StateBatch) -> None:
    """Append `next_`, to the last piece if that ends before it and says the same."""
    last = pieces[-1] if pieces else None
    if last is not None and last.last_offset + 1 == next_.first_offset and last[2:] == next_[2:]:
        pieces[-1] = last._replace(last_offset=next_.last_offset)
    else:
        pieces.append(next_)


def is_sound(batches: Sequence[StateBatch]) -> bool:
    """Whether it is a list as above; for tests and invariants."""
    return all(batch.first_offset <= batch.last_offset for batch in batches) and all(
        left.last_offset < right.first_offset
        and (left.last_offset + 1 < right.first_offset or left[2:] != right[2:])
        for left, right in pairwise(batches)
    )
