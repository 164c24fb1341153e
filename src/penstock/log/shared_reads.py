"""Stretches of segments that several readers ask for one after the other: read and checked once.

Groups that read the same topic at the same pace ask for the same bytes. Whoever asks second for a
stretch has it kept here, so that those who follow neither read the file nor check the CRCs again;
from then on whoever asks first has, for as long as others follow. A single reader keeps nothing:
what it has read is freed at once, and its memory used again while the processor's caches still hold
it.

Invariant: what is kept is what the file holds there. Segments are only appended to; who cuts one
off says so (`forget`), and what was read before that is not taken any more. Limits:
`SHARED_READS_MAX` stretches of `SHARED_READ_BYTES_MAX` at most.
Used by the loop's thread and by those that read cold data, under one lock.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from penstock.log.limits import (
    SHARED_READ_BYTES_MAX,
    SHARED_READ_BYTES_MIN,
    SHARED_READS_ASKED_MAX,
    SHARED_READS_AT_ONCE,
    SHARED_READS_MAX,
)

if TYPE_CHECKING:
    from penstock.log.files import LogFile

Key: TypeAlias = "tuple[LogFile, int, int]"
"""A file, a position in it, a size."""
Checked: TypeAlias = tuple[bytes | memoryview, int]
"""Whole batches with good CRCs, and the offset after the last one."""


class SharedReads:
    """Of all segments of a data directory."""

    __slots__ = ("_asked", "_kept", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._asked: OrderedDict[Key, None] = OrderedDict()
        self._kept: OrderedDict[Key, Checked] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Checked | None:
        """What others have read there, if it is kept."""
        if not SHARED_READ_BYTES_MIN <= key[2] <= SHARED_READ_BYTES_MAX:
            return None
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                key[0].shares = SHARED_READS_AT_ONCE
            return found

    def is_shared(self, key: Key) -> bool:
        """Whether others read there too, so that it is worth to be read and kept."""
        if not SHARED_READ_BYTES_MIN <= key[2] <= SHARED_READ_BYTES_MAX:
            return False
        with self._lock:
            if key[0].shares or key in self._asked or key in self._kept:
                return True
            self._ask(key)
            return False

    def _ask(self, key: Key) -> None:
        self._asked[key] = None
        if len(self._asked) > SHARED_READS_ASKED_MAX:
            self._asked.popitem(last=False)

    def put(self, key: Key, read: Checked, cuts: int) -> None:
        """Someone has read this: it is kept if others have asked for it, or will. `cuts` is how
        often the file had been cut off when the reading began.
        """
        if not SHARED_READ_BYTES_MIN <= key[2] <= SHARED_READ_BYTES_MAX:
            return
        file = key[0]
        with self._lock:
            if file.cuts != cuts:
                return
            if key in self._asked:
                del self._asked[key]
                file.shares = SHARED_READS_AT_ONCE
            elif file.shares:
                file.shares -= 1
            else:
                self._ask(key)
                return
            self._kept[key] = read
            if len(self._kept) > SHARED_READS_MAX:
                self._kept.popitem(last=False)

    def forget(self, file: LogFile) -> None:
        """The file was cut off."""
        with self._lock:
            file.cuts += 1
            file.shares = 0
            for keys in (self._kept, self._asked):
                for key in [key for key in keys if key[0] is file]:
                    del keys[key]
