"""The window of a share-partition as it was persisted. Long runs of what is done are folded.

What lies between the persisted batches, and is not known to be done, was perhaps given to members
once, and nothing was persisted of it: it is unseen, and has to be read again.
"""

from __future__ import annotations

from typing import Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.share.types import UNINITIALIZED_START, Cause, ShareState
from penstock.share.window import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    TERMINAL,
    UNSEEN,
    Window,
)

LOADED_SPAN_MAX: Final = 10_000_000
"""Cells of a window that is loaded: what others persist is bounded, too."""

_COUNT_MAX: Final = 255
_PERSISTED: Final = frozenset({AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED})
_CAUSES: Final = frozenset(map(int, Cause))


def loaded(state: ShareState, start_offset: int) -> Window:
    """The window; `start_offset` is where it begins if the state does not say it."""
    start = start_offset if state.start_offset == UNINITIALIZED_START else state.start_offset
    window = Window(start)
    for first, last, number, count, cause, _ in sorted(state.batches):
        unseen = first - window.end - 1
        cells = unseen + (0 if number in TERMINAL else last - first)
        if unseen < 0 or last < first or len(window) + cells >= LOADED_SPAN_MAX:
            raise _damaged(f"a batch of records {first} to {last}")
        if number not in _PERSISTED or count < 0:
            raise _damaged(f"records in state {number} that were delivered {count} times")
        if unseen:
            window.append(unseen, UNSEEN, 0)
        count = min(count, _COUNT_MAX)
        if number in TERMINAL:
            window.append_done(last - first + 1, number, count)
            continue
        begin = window.append(last - first + 1, number, count)
        if number == ARCHIVING:
            # A later release may know causes that this one does not.
            window.mark(begin, len(window), cause if cause in _CAUSES else Cause.NONE)
    window.cut(window.finished())
    return window


def _damaged(what: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the persisted state has {what}")
