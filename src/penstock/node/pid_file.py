"""`penstock.pid` in a node's data folder: which process serves the folder now.

The process holds a lock on the file while it lives, so that a file left by a killed process is
recognised, even when another process has its number by now. A clean stop removes the file. The
folder itself has its own lock (`log/manager.py`); a process that cannot lock this file continues,
and fails there with the better message.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PID_FILE = "penstock.pid"
CLAIM_TRIES = 5
CLAIM_PAUSE_S = 0.01


@contextmanager
def pid_file(data_dir: str) -> Iterator[None]:
    """Keeps the file up to date while the block runs."""
    path = os.path.join(data_dir, PID_FILE)
    fd = _claim(path)
    if fd is None:
        yield
        return
    try:
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.close(fd)


def _claim(path: str) -> int | None:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    for _ in range(CLAIM_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(CLAIM_PAUSE_S)  # `running_pid` holds the lock for a moment, too
        else:
            return fd
    os.close(fd)
    return None


def read_pid(data_dir: str) -> int | None:
    """The number in the file, whether or not such a process is alive."""
    try:
        with open(os.path.join(data_dir, PID_FILE), encoding="ascii") as f:
            return int(f.read())
    except (OSError, ValueError):
        return None


def running_pid(data_dir: str) -> int | None:
    """The process that serves the folder now, or None."""
    pid = read_pid(data_dir)
    if pid is None:
        return None
    try:
        fd = os.open(os.path.join(data_dir, PID_FILE), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid
    finally:
        os.close(fd)
    return None
