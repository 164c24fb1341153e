"""Rounds: in each one every peer has its turn, and the order rotates from round to round.

A turn starts the server in a fresh folder, notes start-up time and idle memory, warms it up, runs
all workloads, stops it and removes the folder. Workloads that want an fsync before the
acknowledgement have a server of their own. What fails is recorded with its message and the round
goes on with a fresh server, warmed up too: the old one may be gone, or still at work on what nobody
waits for. Beside each figure stands how much of the machine its host took away meanwhile.

Before each workload, what the ones before it left to be written to disk is written, so that no
workload and no peer pays for another one's data.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .figures import Results
from .load import consume, publish
from .pacing import paced
from .server import Server
from .wire import PeerError
from .workloads import IDLE, LARGE_BATCH_BYTES, LOADED, START, Workload, a_topic

IDLE_S = 2.0
WARM_UP_RATE = 1_000
DIRTY_BYTES_MAX = 256 * 1024 * 1024
LOG_TAIL_BYTES = 600
MB = 1_000_000

Kind = type[Server]


class Plan(NamedTuple):
    """What is to be run, and where."""

    kinds: Sequence[Kind]
    workloads: Sequence[Workload]
    runs: int
    seconds: float
    folder: Path
    done: int = 0
    """Rounds that an earlier run has done."""


class Progress:
    """Says on stderr what is being done, and how long the rest will take at this pace."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()

    def step(self, what: str) -> None:
        """The next of the steps begins."""
        left = ""
        if self._done:
            pace_s = (time.monotonic() - self._began) / self._done
            left = f" (about {pace_s * (self._total - self._done) / 60:.0f} min left)"
        self._done += 1
        print(f"{what}{left}", file=sys.stderr, flush=True)


def run_rounds(
    plan: Plan, results: Results, progress: Progress, round_done: Callable[[int], None]
) -> None:
    """All rounds; `round_done` is called at the end of each one with its number (from 1)."""
    for number in range(plan.done + 1, plan.runs + 1):
        for kind in rotated(plan.kinds, number - 1):
            for fsync in (False, True):
                chosen = _possible(plan, kind, number, fsync, results, progress)
                if chosen:
                    _Turn(plan, kind, number, fsync, results, progress).run(chosen)
        round_done(number)


def rotated(kinds: Sequence[Kind], by: int) -> list[Kind]:
    by %= len(kinds) or 1
    return [*kinds[by:], *kinds[:by]]


def _possible(
    plan: Plan, kind: Kind, number: int, fsync: bool, results: Results, progress: Progress
) -> list[Workload]:
    """What `kind` can do of the workloads; of the others the reason is recorded."""
    chosen = []
    for workload in plan.workloads:
        if workload.fsync != fsync:
            continue
        if reason := workload.impossible(kind):
            results.add(workload.name, kind.name, number, cannot=reason)
            progress.step(f"round {number} of {plan.runs}, {kind.name}: {workload.name}: {reason}")
        else:
            chosen.append(workload)
    return chosen


class _Turn:
    """One server of one kind in one round."""

    def __init__(
        self,
        plan: Plan,
        kind: Kind,
        number: int,
        fsync: bool,
        results: Results,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._kind = kind
        self._number = number
        self._fsync = fsync
        self._results = results
        self._progress = progress
        self._starts = 0
        self._peak_bytes = 0
        self._down = False
        self._server = self._fresh()

    def run(self, chosen: Sequence[Workload]) -> None:
        try:
            self._measure_start(self._start(), chosen)
            if any(workload.run is not None for workload in chosen):
                warm_up(self._server)
        except Exception as e:  # whatever a peer does wrong must not end the run
            for workload in chosen:
                self._say(workload)
                self._failed(workload, e)
        else:
            for workload in chosen:
                if workload not in (START, IDLE):
                    self._measure(workload)
        finally:
            self._end()

    def _fresh(self) -> Server:
        self._starts += 1
        name = self._kind.name.lower().replace(" ", "-")
        suffix = "-fsync" if self._fsync else ""
        folder = self._plan.folder / f"{name}-{self._number}-{self._starts}{suffix}"
        return self._kind(folder, fsync=self._fsync)

    def _start(self) -> float:
        """The seconds that it took."""
        took_s = self._server.start()
        self._down = False
        policy = "durability_fsync" if self._fsync else "durability"
        self._results.peers[self._kind.name][policy] = self._server.durability
        return took_s

    def _measure_start(self, took_s: float, chosen: Sequence[Workload]) -> None:
        if START in chosen:
            self._say(START)
            self._note(START, s=took_s)
        if IDLE in chosen:
            self._say(IDLE)
            time.sleep(IDLE_S)
            self._note(IDLE, mb=self._server.rss_bytes() / MB)

    def _measure(self, workload: Workload) -> None:
        self._say(workload)
        try:
            if self._down:
                self._end()
                self._server = self._fresh()
                self._start()
                warm_up(self._server)
            settle()
            stolen = Stolen()
            figures = self._figures(workload)
            self._note(workload, **figures, stolen=stolen.share())
        except Exception as e:  # as above
            self._failed(workload, e)
            self._down = True

    def _figures(self, workload: Workload) -> dict[str, float]:
        if workload.run is not None:
            return workload.run(self._server, self._plan.seconds)
        assert workload is LOADED
        self._note_peak()
        return {"mb": self._peak_bytes / MB}

    def _note_peak(self) -> None:
        """Of this server, or of one before it that had to be replaced."""
        if self._server.runs:
            used = sum(map(peak_bytes, self._server.pids()))
            self._peak_bytes = max(self._peak_bytes, used)

    def _end(self) -> None:
        self._note_peak()
        self._server.stop()
        shutil.rmtree(self._server.folder, ignore_errors=True)
        os.sync()

    def _say(self, workload: Workload) -> None:
        where = f"round {self._number} of {self._plan.runs}, {self._kind.name}"
        self._progress.step(f"{where}: {workload.name}")

    def _note(self, workload: Workload, **figures: float) -> None:
        self._results.add(workload.name, self._kind.name, self._number, figures=figures)

    def _failed(self, workload: Workload, error: Exception) -> None:
        log = self._server.folder / "server.log"
        tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if log.exists() else ""
        what = str(error) if isinstance(error, PeerError) else f"{type(error).__name__}: {error}"
        print(f"  failed: {what}", file=sys.stderr, flush=True)
        self._results.add(workload.name, self._kind.name, self._number, failed=what, log=tail)


class Stolen:
    """How much of its processors the machine's host has given to others since this was made."""

    def __init__(self) -> None:
        self._began = self._ticks()

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """Of all processors: stolen, and altogether."""
        with open("/proc/stat") as stat:
            ticks = [int(word) for word in stat.readline().split()[1:9]]
        return ticks[7], sum(ticks)

    def share(self) -> float:
        (stolen, ticks), (stolen_before, ticks_before) = self._ticks(), self._began
        return (stolen - stolen_before) / max(1, ticks - ticks_before)


def warm_up(server: Server) -> None:
    """Some seconds of all kinds of load; a JVM compiles what it needs meanwhile."""
    share_s = server.warm_up_s / 4
    size, batch = 1_000, LARGE_BATCH_BYTES // 1_000
    with a_topic(server) as topic:
        large, single = (
            publish(
                server,
                topic,
                size=size,
                messages=messages,
                connections=connections,
                depth=1,
                acks="1",
                seconds=share_s,
            )
            for messages, connections in ((batch, 8), (1, 64))
        )
        expected = large.messages + single.messages
        consume(server, topic, groups=1, expected=expected, seconds=share_s)
    with a_topic(server) as topic:
        paced(server, topic, size=100, rate=WARM_UP_RATE, messages_per_request=1, seconds=share_s)


def settle() -> None:
    """Has the system write what waits to be written, if it is much."""
    with open("/proc/meminfo") as info:
        dirty = next(int(line.split()[1]) * 1024 for line in info if line.startswith("Dirty:"))
    if dirty > DIRTY_BYTES_MAX:
        os.sync()


def peak_bytes(pid: int) -> int:
    """The most resident memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
