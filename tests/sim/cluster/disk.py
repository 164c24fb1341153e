"""A disk per machine: real files, and an account of what of them a loss of power would keep.

Every module of Penstock that imported `os` gets an `Os` instead, which does what `os` does and
writes down what is not yet durable: for a file the writes and truncations since its last fsync, for
a directory the creations, renames and removals since its own. A loss of power undoes a random
suffix of each of these journals, tears the write at which it stopped, and may leave zeros where
data had not arrived. The death of a process alone loses nothing.

An open disk can also be made to fail: `full` refuses what takes space, `fsync_fails` makes the next
fsync an error.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .trace import Trace

SECTOR_BYTES = 512
LOG = ".log"
METADATA = "__cluster_metadata"
PARTITION_METADATA = "partition.metadata"
DELETED = "-delete"
"""How the name of a removed replica's directory ends."""
REMOVED = {
    LOG: "segment cut off",
    LOG + ".deleted": "deleted segment removed",
    LOG + ".cleaned": "unfinished cleaning removed",
}
"""By how a removed file's name ends."""


@dataclass
class Write:
    """`size` bytes at `position`, over `before`, in a file that was `end` long."""

    position: int
    size: int
    before: bytes
    end: int


@dataclass
class Inode:
    number: int
    pending: list[Write] = field(default_factory=list)
    modified_ns: int = 0


@dataclass
class Change:
    """A change of a directory and how to undo it, wherever that directory is by then."""

    what: str
    undo: Callable[[str], None]
    forget: Callable[[], None]


class Disk:
    """What one machine keeps under `root`; open descriptors belong to its one process."""

    def __init__(self, machine: str, root: str, rng: random.Random, trace: Trace) -> None:
        self.machine = machine
        self.paths = trace.paths
        self.beside: Callable[[], bool] = lambda: False
        """Whether another thread than the loop's is at work."""
        self.root = root
        self.trash = root + ".trash"
        self.rng = rng
        self.trace = trace
        self.now_ns: Callable[[], int] = lambda: 0
        self.inodes: dict[int, Inode] = {}
        self.changes: dict[str, list[Change]] = {}
        self.descriptors: dict[int, tuple[Inode | None, str]] = {}
        self.full = 0.0
        """The chance that what takes space is refused."""
        self.fsync_fails = 0
        self.cold_reads = 0.02
        self._trashed = 0
        self._swaps: set[str] = set()
        """Segments whose swap was begun by this process."""
        self._left: dict[str, str] = {}
        """The directories of replicas that were removed, with the ids of their topics."""
        os.makedirs(root, exist_ok=True)
        os.makedirs(self.trash, exist_ok=True)

    # -- files ---------------------------------------------------------------------------------

    def opened(self, fd: int, path: str, *, created: bool, truncated: bool) -> None:
        if os.path.isdir(path):
            self.descriptors[fd] = (None, path)
            return
        inode = self.inode(os.fstat(fd).st_ino, new=created)
        self.descriptors[fd] = (inode, path)
        if created:
            inode.modified_ns = self.now_ns()
            name = os.path.basename(path)
            self.note(path, "create", lambda at: _unlink(os.path.join(at, name)), _nothing)
            if path.endswith(LOG) and int(os.path.basename(path)[: -len(LOG)]):
                self.paths.reach("segment rolled")
        elif truncated:
            inode.modified_ns = self.now_ns()

    def inode(self, number: int, *, new: bool = False) -> Inode:
        inode = self.inodes.get(number)
        if inode is None or new:
            inode = self.inodes[number] = Inode(number)
        return inode

    def write_begins(self, fd: int, position: int, size: int) -> None:
        inode = self.descriptors[fd][0]
        assert inode is not None
        if self.is_beside(fd):
            self.paths.reach("written beside")
        end = os.fstat(fd).st_size
        before = os.pread(fd, size, position) if position < end else b""
        inode.pending.append(Write(position, size, before, end))
        inode.modified_ns = self.now_ns()

    def is_beside(self, fd: int) -> bool:
        """Whether a descriptor is a partition's log in the hands of another thread."""
        path = self.descriptors[fd][1]
        return path.endswith(LOG) and METADATA not in path and self.beside()

    def truncate_begins(self, fd: int, size: int) -> None:
        inode = self.descriptors[fd][0]
        assert inode is not None
        end = os.fstat(fd).st_size
        if size != end:
            before = os.pread(fd, end - size, size) if size < end else b""
            inode.pending.append(Write(size, 0, before, end))
            inode.modified_ns = self.now_ns()

    def synced(self, fd: int) -> None:
        inode, path = self.descriptors[fd]
        if inode is None:
            for change in self.changes.pop(path, ()):
                change.forget()
        else:
            inode.pending.clear()
        self.trace.event(f"fsync {self.machine} {os.path.relpath(path, self.root)}")

    # -- directories ---------------------------------------------------------------------------

    def note(
        self, path: str, what: str, undo: Callable[[str], None], forget: Callable[[], None]
    ) -> None:
        directory = os.path.dirname(path)
        self.changes.setdefault(directory, []).append(Change(what, undo, forget))

    def keep_aside(self, path: str) -> str | None:
        """Another name for what `path` names, so that a removal can be undone."""
        if not os.path.isfile(path):
            return None
        self._trashed += 1
        aside = os.path.join(self.trash, str(self._trashed))
        os.link(path, aside)
        return aside

    def moved(self, old: str, new: str, displaced: str | None) -> None:
        self._reach_by_name(old, new)
        before, after = os.path.basename(old), os.path.basename(new)
        assert os.path.dirname(old) == os.path.dirname(new)

        def undo(at: str) -> None:
            there = os.path.join(at, after)
            if os.path.exists(there):
                os.rename(there, os.path.join(at, before))
            if displaced is not None:
                os.link(displaced, there)

        self.note(new, "rename", undo, lambda: _unlink(displaced))

    def _reach_by_name(self, old: str, new: str) -> None:
        """Segments say by their suffixes what happens to them (`log.replacement`)."""
        if new.endswith(LOG + ".swap"):
            self._swaps.add(new)
        elif old.endswith(LOG + ".swap"):
            begun = old in self._swaps
            self.paths.reach("compaction swapped" if begun else "interrupted swap finished")
        elif new.endswith(LOG + ".deleted"):
            swapping = any(name.endswith(".swap") for name in os.listdir(os.path.dirname(new)))
            self.paths.reach("segment replaced" if swapping else "segment deleted by retention")
        elif new.endswith(".key"):
            self.paths.reach("segment encrypted")
        elif new.endswith(".log.unreadable"):
            self.paths.reach("key lost with the power")
        elif new.endswith(".checkpoint"):
            self.paths.reach("metadata snapshot written")
        elif new.endswith(DELETED):
            self.paths.reach("replica removed")
            self._left[os.path.basename(old)] = _topic_id(new)
        elif os.path.basename(new) == PARTITION_METADATA:
            left = self._left.pop(os.path.basename(os.path.dirname(new)), None)
            if left is not None:
                again = left == _topic_id(os.path.dirname(new))
                self.paths.reach("replica came back" if again else "topic made again")

    def removed(self, path: str, aside: str | None) -> None:
        for suffix, reached in REMOVED.items():
            if path.endswith(suffix):
                self.paths.reach(reached)

        name = os.path.basename(path)

        def undo(at: str) -> None:
            if aside is not None:
                _unlink(os.path.join(at, name))
                os.link(aside, os.path.join(at, name))

        self.note(path, "unlink", undo, lambda: _unlink(aside))

    # -- what happens to a disk ----------------------------------------------------------------

    def process_died(self) -> None:
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors.clear()
        self._swaps.clear()

    def lose_power(self) -> None:
        """Undo what was not durable, as far as chance wants it."""
        paths = {os.stat(p).st_ino: p for p in self._files(self.root) + self._files(self.trash)}
        lost = 0
        for number in sorted(self.inodes, key=lambda n: paths.get(n, "")):
            inode = self.inodes[number]
            if inode.pending and number in paths:
                lost += self._lose_writes(inode, paths[number])
            inode.pending.clear()
        # What is in a directory first: then it may get its old name back, which may be another's.
        for directory in sorted(filter(os.path.isdir, self.changes), reverse=True):
            changes = self.changes[directory]
            kept = self.rng.choice((len(changes), self.rng.randint(0, len(changes))))
            for change in reversed(changes[kept:]):
                change.undo(directory)
                lost += 1
        self.changes.clear()
        if lost:
            self.paths.reach("writes lost with the power")
        self.trace.say(self.machine, f"power lost; {lost} writes and changes undone")

    def _lose_writes(self, inode: Inode, path: str) -> int:
        rng, writes = self.rng, inode.pending
        kept = rng.choice((0, len(writes), rng.randint(0, len(writes))))
        fd = os.open(path, os.O_RDWR)
        try:
            for write in reversed(writes[kept:]):
                if write.before:
                    os.pwrite(fd, write.before, write.position)
                os.ftruncate(fd, write.end)
            if kept < len(writes) and writes[kept].size:
                self._tear(fd, writes[kept])
        finally:
            os.close(fd)
        return len(writes) - kept

    def _tear(self, fd: int, write: Write) -> None:
        """The write at which the power went: a part of it, or zeros where it should be."""
        how = self.rng.randrange(4)
        end = os.fstat(fd).st_size
        if how == 1 and write.position >= end:
            os.ftruncate(fd, write.position + self.rng.randint(0, write.size))
        elif how == 2 and write.position >= end:
            torn = self.rng.randbytes(self.rng.randint(0, min(write.size, SECTOR_BYTES)))
            os.pwrite(fd, torn, write.position)

    @staticmethod
    def _files(root: str) -> list[str]:
        return [os.path.join(d, name) for d, _, names in os.walk(root) for name in sorted(names)]

    def wipe(self) -> None:
        for path in (self.root, self.trash):
            shutil.rmtree(path)
            os.makedirs(path)
        self.inodes.clear()
        self.changes.clear()
        self._left.clear()

    def check_space(self, fd: int = -1) -> None:
        if self.full and self.rng.random() < self.full:
            self.paths.reach("disk full")
            if fd >= 0 and self.is_beside(fd):
                self.paths.reach("write beside failed")
            raise OSError(errno.ENOSPC, "No space left on device")


def _nothing() -> None:
    return


def _unlink(path: str | None) -> None:
    if path is not None and os.path.lexists(path):
        os.unlink(path)


def _rmtree(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _topic_id(directory: str) -> str:
    """What a replica's directory says of the topic it was made for."""
    try:
        with open(os.path.join(directory, PARTITION_METADATA)) as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Os(types.ModuleType):
    """`os` for Penstock's modules, on whichever disk a path or a descriptor belongs to."""

    def __init__(self) -> None:
        super().__init__("os")
        self.disks: list[Disk] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _of_path(self, path: Any) -> Disk | None:
        text = os.fspath(path)
        for disk in self.disks:
            if text.startswith(disk.root + "/") or text == disk.root:
                return disk
        return None

    def _of_fd(self, fd: int) -> Disk | None:
        for disk in self.disks:
            if fd in disk.descriptors:
                return disk
        return None

    # -- descriptors ---------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        disk = self._of_path(path)
        if disk is None:
            return os.open(path, flags, mode, **more)
        creates = bool(flags & os.O_CREAT) and not os.path.exists(path)
        if creates:
            disk.check_space()
        truncates = bool(flags & os.O_TRUNC)
        if flags & os.O_WRONLY:
            flags = flags & ~os.O_WRONLY | os.O_RDWR  # what is written over is read first
        fd = os.open(path, flags & ~os.O_TRUNC, mode, **more)
        disk.opened(fd, os.fspath(path), created=creates, truncated=truncates)
        if truncates and not creates:
            disk.truncate_begins(fd, 0)
            os.ftruncate(fd, 0)
        return fd

    def close(self, fd: int) -> None:
        disk = self._of_fd(fd)
        if disk is not None:
            del disk.descriptors[fd]
        os.close(fd)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        disk = self._of_fd(fd)
        if disk is not None:
            disk.check_space(fd)
            disk.write_begins(fd, offset, len(data))
        return os.pwrite(fd, data, offset)

    def pwritev(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        disk = self._of_fd(fd)
        if disk is not None:
            disk.check_space(fd)
            disk.write_begins(fd, offset, sum(map(len, buffers)))
        return os.pwritev(fd, buffers, offset, flags)

    def write(self, fd: int, data: Any) -> int:
        disk = self._of_fd(fd)
        if disk is not None:
            disk.check_space(fd)
            disk.write_begins(fd, os.lseek(fd, 0, os.SEEK_CUR), len(data))
        return os.write(fd, data)

    def ftruncate(self, fd: int, length: int) -> None:
        disk = self._of_fd(fd)
        if disk is not None:
            disk.truncate_begins(fd, length)
        os.ftruncate(fd, length)

    def truncate(self, path: Any, length: int) -> None:
        if isinstance(path, int):
            self.ftruncate(path, length)
            return
        fd = self.open(path, os.O_RDWR)
        try:
            self.ftruncate(fd, length)
        finally:
            self.close(fd)

    def fsync(self, fd: int) -> None:
        disk = self._of_fd(fd)
        if disk is None:
            return
        if disk.fsync_fails:
            disk.fsync_fails -= 1
            disk.paths.reach("fsync failed")
            disk.trace.say(disk.machine, f"fsync of {disk.descriptors[fd][1]} fails")
            raise OSError(errno.EIO, "Input/output error")
        disk.synced(fd)

    fdatasync = fsync

    def preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        disk = self._of_fd(fd)
        if disk is not None and flags & os.RWF_NOWAIT:
            if disk.rng.random() < disk.cold_reads:
                disk.paths.reach("cold read")
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            flags &= ~os.RWF_NOWAIT
        return os.preadv(fd, buffers, offset, flags)

    # -- names ---------------------------------------------------------------------------------

    def rename(self, old: Any, new: Any) -> None:
        disk = self._of_path(old)
        displaced = disk.keep_aside(new) if disk is not None else None
        os.rename(old, new)
        if disk is not None:
            disk.moved(old, new, displaced)
            _follow_move(disk, os.fspath(old), os.fspath(new))

    replace = rename

    def unlink(self, path: Any) -> None:
        disk = self._of_path(path)
        aside = disk.keep_aside(path) if disk is not None else None
        os.unlink(path)
        if disk is not None:
            disk.removed(path, aside)

    remove = unlink

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        disk = self._of_path(path)
        if disk is not None and not os.path.exists(path):
            disk.check_space()
        os.mkdir(path, mode)
        if disk is not None:
            name = os.path.basename(os.fspath(path))
            disk.note(path, "mkdir", lambda at: _rmtree(os.path.join(at, name)), _nothing)

    def makedirs(self, path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        parent = os.path.dirname(os.fspath(path))
        if parent and not os.path.isdir(parent):
            self.makedirs(parent, mode, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok:
                raise

    def stat(self, path: Any, **more: Any) -> Any:
        found = os.stat(path, **more)
        disk = self._of_fd(path) if isinstance(path, int) else self._of_path(path)
        if disk is None:
            return found
        modified_ns = disk.inode(found.st_ino).modified_ns
        return types.SimpleNamespace(
            st_size=found.st_size,
            st_mode=found.st_mode,
            st_ino=found.st_ino,
            st_mtime_ns=modified_ns,
            st_mtime=modified_ns / 1e9,
        )

    def listdir(self, path: Any = ".") -> list[str]:
        return sorted(os.listdir(path))

    def scandir(self, path: Any = ".") -> Any:
        return _Entries(path)

    def statvfs(self, path: Any) -> Any:
        return types.SimpleNamespace(f_frsize=4096, f_blocks=1 << 20, f_bavail=1 << 19)


class _Entries:
    """What scandir gives, in the order of names."""

    def __init__(self, path: Any) -> None:
        with os.scandir(path) as entries:
            self._entries = iter(sorted(entries, key=lambda e: e.name))

    def __iter__(self) -> Any:
        return self._entries

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return


def _follow_move(disk: Disk, old: str, new: str) -> None:
    """A directory was renamed: what is known of the old name is true of the new one."""
    if old in disk.changes:
        disk.changes.setdefault(new, []).extend(disk.changes.pop(old))
