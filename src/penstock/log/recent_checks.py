"""Stretches of segments that were read and found good a moment ago: they are not checked again.

Groups that read the same topic at the same pace ask for the same stretches. What one of them has
read and checked is in the page cache as it was checked, just as what was written a moment ago is
(`FRESH_S`): those who follow have it sent unread.

Invariant: what is said of a stretch is true of what the file holds there. Segments are only
appended to; who cuts one off says so (`forget`), and what was read before that is not taken any
more. Limits: `RECENT_CHECKS_MAX` stretches, the oldest go first; none smaller than
`UNREAD_BYTES_MIN`.
Used by the loop's thread and by those that read cold data, under one lock.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.log.limits import FRESH_S, RECENT_CHECKS_MAX, UNREAD_BYTES_MIN

if TYPE_CHECKING:
    from penstock.log.files import LogFile

Stretch: TypeAlias = "tuple[LogFile, int, int]"
"""A file, a position in it, a size."""
Began: TypeAlias = tuple[float, int]
"""When a read began, and how often its file had been cut off by then."""


class Checked(NamedTuple):
    """What a stretch was found to be."""

    size: int
    """Bytes of whole batches, with good CRCs."""
    end_offset: int
    """The offset after the last of them."""


class RecentChecks:
    """Of all segments of a data directory."""

    __slots__ = ("_found", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: OrderedDict[Stretch, tuple[Checked, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, stretch: Stretch) -> Checked | None:
        """What was found there lately."""
        with self._lock:
            found = self._found.get(stretch)
        if found is None or stretch[0].now_s() - found[1] > FRESH_S:
            return None
        return found[0]

    def begin(self, file: LogFile) -> Began:
        """Someone begins to read a stretch of the file."""
        return (file.now_s(), file.cuts)

    def put(self, stretch: Stretch, checked: Checked, began: Began) -> None:
        """It was read and found to be that."""
        at_s, cuts = began
        if stretch[2] < UNREAD_BYTES_MIN:
            return
        with self._lock:
            if stretch[0].cuts != cuts:
                return
            self._found[stretch] = (checked, at_s)
            self._found.move_to_end(stretch)
            if len(self._found) > RECENT_CHECKS_MAX:
                self._found.popitem(last=False)

    def forget(self, file: LogFile) -> None:
        """The file was cut off."""
        with self._lock:
            file.cuts += 1
            for stretch in [stretch for stretch in self._found if stretch[0] is file]:
                del self._found[stretch]
