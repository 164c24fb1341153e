"""The window of a share-partition as it was persisted.

What lies between the persisted batches, and is not known to be done, was perhaps given to members
once, and nothing was persisted of it: it is unseen, and has to be read again.
"""

from __future__ import annotations

from typing import Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.share.types import UNINITIALIZED_START, ShareState
from penstock.share.window import ACKNOWLEDGED, ARCHIVED, AVAILABLE, UNSEEN, Window

LOADED_SPAN_MAX: Final = 10_000_000
"""Offsets of a window that is loaded: what others persist is bounded, too."""

_COUNT_MAX: Final = 255
_PERSISTED: Final = frozenset({AVAILABLE, ACKNOWLEDGED, ARCHIVED})


def loaded(state: ShareState, start_offset: int) -> Window:
    """The window; `start_offset` is where it begins if the state does not say it."""
    start = start_offset if state.start_offset == UNINITIALIZED_START else state.start_offset
    window = Window(start)
    for first, last, number, count in sorted(state.batches):
        unseen = first - window.end - 1
        if unseen < 0 or last < first or last - start >= LOADED_SPAN_MAX:
            raise _damaged(f"a batch of records {first} to {last}")
        if number not in _PERSISTED or count < 0:
            raise _damaged(f"records in state {number} that were delivered {count} times")
        if unseen:
            window.append(unseen, UNSEEN, 0)
        window.append(last - first + 1, number, min(count, _COUNT_MAX))
    window.cut(window.finished())
    return window


def _damaged(what: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the persisted state has {what}")
