"""What runs of pipelines leave on disk, for `penstock pipeline list|status|stop`.

One folder per pipeline name below `$PENSTOCK_STATE_DIR`, else `$XDG_STATE_HOME/penstock`, else
`~/.local/state/penstock`:

    lock           held by the parent process for as long as it lives
    run.json       this run, or the last one (`Run`); written by the parent
    progress.json  the last progress of each query; written by the parent
    log            what Spark and the pipeline said on stderr
    checkpoint/    the progress of queries that were given no other place

Invariants: a run is alive if and only if its lock is held, which the kernel sees to; and a process
is only signalled if it was started when ours was, so that a number that now belongs to somebody
else is never taken for ours. Files are replaced whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from penstock.spark.pipeline.errors import BusyError, PipelineError

LOG_BYTES_MAX = 16 * 1024 * 1024
"""A log that grows larger becomes `log.1`, in place of the one before."""
CLAIM_TRIES = 20
CLAIM_PAUSE_S = 0.02
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

STARTING, RUNNING, WAITING, STOPPING = "starting", "running", "waiting to restart", "stopping"
DONE, STOPPED, FAILED, CRASHED = "done", "stopped", "failed", "crashed"
ENDED = (DONE, STOPPED, FAILED, CRASHED)


@dataclass(frozen=True)
class Run:
    """One `penstock pipeline run`."""

    name: str
    pid: int
    target: str
    master: str
    started_ms: int
    pid_born: str | None = None
    child_pid: int | None = None
    child_born: str | None = None
    status: str = STARTING
    restarts: int = 0
    last_error: str | None = None
    ended_ms: int | None = None
    exit_code: int | None = None


def state_dir() -> Path:
    """Where the folders of all pipelines lie."""
    if given := os.environ.get("PENSTOCK_STATE_DIR"):
        return Path(given).absolute()
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "penstock"


def born(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks: with its number it is told from any other.
    None if it has ended, or where the kernel does not say.
    """
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if parts[0] == "Z" else parts[19]


def folders() -> list[Folder]:
    """Every pipeline that has run on this machine and left its folder."""
    place = state_dir() / "pipelines"
    found = sorted(place.iterdir()) if place.is_dir() else []
    return [Folder(path.name) for path in found if (path / "run.json").exists()]


class Folder:
    """The folder of one pipeline."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise PipelineError(
                f"{name!r} is no name for a pipeline: take letters, digits, '.', '_' and '-', at"
                " most 128, beginning with a letter or digit"
            )
        self.name = name
        self.path = state_dir() / "pipelines" / name

    @property
    def log_path(self) -> Path:
        return self.path / "log"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Makes the folder this process's own; a second run of the same name is refused."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # settings may hold passwords
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._claim(fd)
            yield
        finally:
            os.close(fd)

    def _claim(self, fd: int) -> None:
        for _ in range(CLAIM_TRIES):  # it may be held by somebody who only asks, for a moment
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(CLAIM_PAUSE_S)
        run = self.run()
        who = f" (process {run.pid})" if run else ""
        raise BusyError(
            f"pipeline {self.name} runs already{who}: stop it with `penstock pipeline stop"
            f" {self.name}`, or give this run another name with --name"
        )

    def is_held(self) -> bool:
        """Whether a run of this name is alive."""
        try:
            fd = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def run(self) -> Run | None:
        """This run or the last one. One that ended without a word has crashed, and is noted so."""
        known = {f.name for f in fields(Run)}
        found = {k: v for k, v in self._read("run.json").items() if k in known}
        try:
            run = Run(**found)
        except TypeError:  # no run yet, or a file of another version
            return None
        if run.status in ENDED or self.is_held():
            return run
        return replace(run, status=CRASHED)

    def write_run(self, run: Run) -> None:
        self._write("run.json", asdict(run))

    def progress(self) -> dict[str, Any]:
        """The last progress of each query, by its name."""
        return self._read("progress.json")

    def write_progress(self, progress: dict[str, Any]) -> None:
        self._write("progress.json", progress)

    def roll_log(self) -> None:
        """Keeps the log from growing for ever. A child that has it open appends, so it goes on at
        the new end; what it writes in the moment between copy and cut is lost.
        """
        with suppress(FileNotFoundError):
            if self.log_path.stat().st_size > LOG_BYTES_MAX:
                shutil.copyfile(self.log_path, self.log_path.with_suffix(".1"))
                os.truncate(self.log_path, 0)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        temporary = self.path / f"{name}.new"
        temporary.write_text(json.dumps(value, ensure_ascii=False))
        temporary.replace(self.path / name)
