"""Ranges of segments that were read and checked recently: they are not checked again.

Groups that read the same topic at the same pace ask for the same ranges. What one of them has read
and checked is in the page cache as it was checked, just like what was written recently
(`FRESH_S`): the next readers are sent it without a read.

Invariant: an entry is true of what the file holds now. Segments are only appended to; a truncation
calls `forget`, and the result of a read that began before it is not stored.
Limits: `RECENT_CHECKS_MAX` ranges, the oldest are dropped first; none smaller than
`UNREAD_BYTES_MIN`. Used by the loop's thread and by the threads of cold reads, under one lock.
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
"""When a read began, and how often its file had been truncated by then."""


class Checked(NamedTuple):
    """The result of a check."""

    size: int
    """Bytes of whole batches, with good CRCs."""
    end_offset: int
    """The offset after the last of them."""


class RecentChecks:
    """The recent checks of all segments of a data directory."""

    __slots__ = ("_found", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: OrderedDict[Stretch, tuple[Checked, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, stretch: Stretch) -> Checked | None:
        """The result of a recent check, if there is one."""
        with self._lock:
            found = self._found.get(stretch)
        if found is None or stretch[0].now_s() - found[1] > FRESH_S:
            return None
        return found[0]

    def begin(self, file: LogFile) -> Began:
        """A read of the file begins: the state to pass to `put`."""
        return (file.now_s(), file.cuts)

    def put(self, stretch: Stretch, checked: Checked, began: Began) -> None:
        """The range was read, with this result."""
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
        """The file was truncated."""
        with self._lock:
            file.cuts += 1
            for stretch in [stretch for stretch in self._found if stretch[0] is file]:
                del self._found[stretch]
