"""Segment files behind one bounded set of open descriptors.

A `LogFile` knows its path and opens itself when it is used; the `FileCache` closes the ones that
were not used lately when more than its limit are open. A pinned file is never closed: every read,
write, send or sync holds a pin while it lasts.

Threads: any thread may pin, use and unpin (cold reads and fsync run in worker threads), so opening,
closing and counting happen under the cache's lock; system calls on a pinned descriptor happen
outside it. A file that is closed while pinned is closed by its last unpin.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from threading import RLock

from penstock.base.clock import Clock, SystemClock
from penstock.base.file_region import FileRegion
from penstock.log.limits import FRESH_S, OPEN_FILES_MAX, REGIONS_MAX
from penstock.log.recent_checks import RecentChecks
from penstock.log.sealing import Seal
from penstock.wire.records import MAGIC

logger = logging.getLogger("penstock.log")

TMP_SUFFIX = ".tmp"
"""Ends the name of a file that is being written and not yet put in its place."""


_NEVER = (0, float("-inf"))


class FileCache:
    """The open descriptors of all segments of a data directory."""

    __slots__ = ("_open", "checks", "clock", "limit", "lock", "regions", "regions_max")

    def __init__(self, limit: int = OPEN_FILES_MAX, regions_max: int = REGIONS_MAX) -> None:
        self.limit = limit
        self.regions_max = regions_max
        # Reentrant: the garbage collector may run `_region_gone` while this thread holds the lock.
        self.lock = RLock()
        self._open: OrderedDict[LogFile, None] = OrderedDict()
        self.checks = RecentChecks()
        self.regions = 0
        """Regions that are being sent (`LogFile.region`)."""
        self.clock: Clock = SystemClock()

    @property
    def opened(self) -> int:
        return len(self._open)

    def _admit(self, file: LogFile) -> None:
        """Called under the lock after `file` was opened."""
        self._open[file] = None
        if len(self._open) > self.limit:
            self._evict()

    def _evict(self) -> None:
        # Second chance: a file used since the last sweep goes round once more. Two rounds at most,
        # so that a set of pinned files ends the search instead of spinning.
        files = self._open
        for _ in range(2 * len(files)):
            file = next(iter(files))
            if file.pins or file.used:
                file.used = False
                files.move_to_end(file)
                continue
            file._shut()
            if len(files) <= self.limit:
                return


class LogFile:
    """One segment file: a path and, while it is in use, a descriptor."""

    __slots__ = (
        "_cache",
        "_close_at_unpin",
        "_marks",
        "ahead_to",
        "checks",
        "cuts",
        "fd",
        "magic",
        "path",
        "pins",
        "seal",
        "tail",
        "used",
    )

    def __init__(self, path: str, cache: FileCache) -> None:
        self.path = path
        self.fd = -1
        self.pins = 0
        self.used = False
        self.seal: Seal | None = None
        """What decrypts the batches, if they are encrypted."""
        self.magic = MAGIC
        """That of every batch in the file."""
        self.tail: bytes | None = None
        """What was written last, plain, for readers at the tail; gone when the file is closed."""
        self.ahead_to = 0
        """How far the page cache was asked to read ahead; 0 until a read misses it."""
        self.cuts = 0
        """How often its end was cut off (`RecentChecks`)."""
        self._marks = (_NEVER, _NEVER)
        """Two (position, time), the older first: bytes from there on were written at that time or
        later.
        """
        self._close_at_unpin = False
        self._cache = cache
        self.checks = cache.checks

    def pin(self) -> int:
        """The open descriptor, which stays valid until `unpin`."""
        with self._cache.lock:
            if self.fd < 0:
                self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                self._close_at_unpin = False
                self.pins += 1
                self._cache._admit(self)
            else:
                self.pins += 1
            self.used = True
            return self.fd

    def wrote(self, start: int) -> None:
        """The bytes from `start` on were written just now."""
        now_s, last = self.now_s(), self._marks[1]
        if now_s - last[1] > FRESH_S / 2:
            self._marks = (last, (start, now_s))

    def is_fresh(self, position: int) -> bool:
        """Whether all bytes from `position` on were certainly written in the last `FRESH_S`."""
        since_s = self.now_s() - FRESH_S
        (early, early_s), (late, late_s) = self._marks
        return (position >= late and late_s >= since_s) or (
            position >= early and early_s >= since_s
        )

    def now_s(self) -> float:
        return self._cache.clock.monotonic()

    def has_room_for_region(self) -> bool:
        return self._cache.regions < self._cache.regions_max

    def region(self, position: int, size: int) -> FileRegion:
        """Bytes of the file, to be sent from the page cache; pins the file until they are sent."""
        with self._cache.lock:
            fd = self.pin()
            self._cache.regions += 1
        return FileRegion(fd, position, size, self._region_gone)

    def _region_gone(self) -> None:
        with self._cache.lock:
            self._cache.regions -= 1
            self.unpin()

    def unpin(self) -> None:
        with self._cache.lock:
            self.pins -= 1
            if self._close_at_unpin and not self.pins:
                self._shut()

    def close(self) -> None:
        """Close now, or at the last unpin; the next `pin` opens the file again."""
        with self._cache.lock:
            if self.pins:
                self._close_at_unpin = True
            elif self.fd >= 0:
                self._shut()

    def _shut(self) -> None:
        os.close(self.fd)
        self.fd = -1
        self.tail = None
        self._close_at_unpin = False
        del self._cache._open[self]

    def cut(self, size: int) -> None:
        """Truncate the file, and forget checks and fresh writes beyond `size`."""
        fd = self.pin()
        try:
            os.ftruncate(fd, size)
        finally:
            self.unpin()
        self.tail = None
        self.checks.forget(self)

    def rename(self, new_path: str) -> None:
        """Give the file another name; open descriptors stay valid."""
        with self._cache.lock:  # another thread may be about to open it
            os.rename(self.path, new_path)
            self.path = new_path

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""
        fd = self.pin()
        try:
            return os.pread(fd, size, position)
        finally:
            self.unpin()


def fsync_dir(path: str) -> None:
    """Make creations, renames and removals in the directory `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_path(path: str) -> None:
    """Make the content of the file `path` durable; a file that is gone needs no syncing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomically(path: str, data: bytes, *, sync: bool = True) -> None:
    """Replace the file `path` by `data`; a crash leaves either the old or the new content."""
    tmp = path + TMP_SUFFIX
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(tmp, path)
    if sync:
        fsync_dir(os.path.dirname(path))


def write_all(fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """`pwrite` until everything is written: a full disk first shows as a short write."""
    done = os.pwrite(fd, data, position)
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], position + done)


def remove_paths(paths: Iterable[str]) -> None:
    """Remove files and directory trees, in any thread: giving back a gigabyte takes its time.

    What cannot be removed is logged and left for the next start.
    """
    for path in paths:
        try:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                unlink_if_exists(path)
        except OSError as e:
            logger.error("cannot remove %s: %s", path, e)


def unlink_if_exists(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
