"""The broker under load as a process: its CPU time and memory, and one that the bench starts
itself.

CPU time comes from `/proc/PID/stat` or, where the process is out of sight, from
`process_cpu_seconds_total` of `/metrics`.
"""

from __future__ import annotations

import mmap
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from penstock.base.errors import InvariantBroken
from penstock.cli.errors import CliError, usage_error

BROKER_CORE = 0
LOAD_CORE = 1
READY_S_MAX = 60.0
STOP_S_MAX = 30.0
HTTP_TIMEOUT_S = 5.0
TOUCH_BYTES = 1024 * 1024
CPU_CLOCK_OF_PROCESS = 2

CpuClock = Callable[[], float]
_READY = re.compile(r"ready: kafka=(\S+)(?: http=\S+)? build=")
_CPU_SAMPLE = re.compile(r"^process_cpu_seconds_total (\S+)", re.MULTILINE)


def process_cpu_clock(pid: int) -> CpuClock:
    """Reads the user and system time of a process with all of its threads, to the nanosecond."""
    # What clock_getcpuclockid() gives on Linux, which Python does not offer for other processes.
    clock = (~pid << 3) | CPU_CLOCK_OF_PROCESS

    def read() -> float:
        try:
            return time.clock_gettime(clock)
        except OSError:
            raise CliError(f"no process {pid} to read CPU time from: check --broker-pid") from None

    return read


def http_cpu_clock(address: str) -> CpuClock:
    """Reads the CPU time that a node tells on its HTTP address."""
    url = f"http://{address}/metrics"

    def read() -> float:
        try:
            with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
                sample = _CPU_SAMPLE.search(answer.read().decode())
        except OSError as e:
            raise CliError(f"cannot read {url} ({e}): check --http") from None
        if sample is None:
            raise CliError(f"{url} has no process_cpu_seconds_total: use --broker-pid instead")
        return float(sample[1])

    return read


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Node(NamedTuple):
    """A node that the bench has started."""

    pid: int
    bootstrap: str
    ready_s: float


def pin(core: int) -> None:
    """Keep this process, and what it starts from now on, on one core; a machine with one has no
    choice.
    """
    if core < (os.cpu_count() or 1):
        os.sched_setaffinity(0, {core})


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Keep what is started inside on one core."""
    allowed = os.sched_getaffinity(0)
    pin(core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def touch_memory(wanted: int) -> None:
    """Write once to so much memory (at most half of what is available) and give it back.

    A virtual machine gets a page from its host when it first writes to it, which takes
    longer than all that a broker does with it; memory that has been touched shows the
    broker instead.
    """
    with open("/proc/meminfo") as info:
        available = next(
            int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable")
        )
    size = min(wanted, available // 2) // TOUCH_BYTES * TOUCH_BYTES
    if not size:
        return
    ones = b"\x01" * TOUCH_BYTES
    with mmap.mmap(-1, size) as memory:
        for position in range(0, size, TOUCH_BYTES):
            memory[position : position + TOUCH_BYTES] = ones


@contextmanager
def temporary_data_dir(parent: str | None) -> Iterator[str]:
    """A data folder that is gone afterwards."""
    try:
        folder = tempfile.mkdtemp(prefix="penstock-bench-", dir=parent)
    except OSError as e:
        raise usage_error(f"cannot make a folder in {parent} ({e.strerror}): check --dir") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_node(
    data_dir: str, *, kill: bool = False, settings: tuple[str, ...] = ()
) -> Iterator[Node]:
    """A node on a free port of 127.0.0.1, pinned to its own core; `kill` ends it without a clean
    stop.
    """
    command = [sys.executable, "-m", "penstock.cli", "serve", "--data-dir", data_dir]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    for setting in settings:
        command += ["--set", setting]
    with tempfile.TemporaryFile() as complaints:
        started = time.perf_counter()
        with pinned(BROKER_CORE):
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints
            )
        try:
            kafka = _await_ready(process, complaints)
            yield Node(process.pid, kafka, time.perf_counter() - started)
        finally:
            _stop(process, kill=kill)


def _await_ready(process: subprocess.Popen[bytes], complaints: IO[bytes]) -> str:
    """The Kafka address from the ready line."""
    output = process.stdout
    if output is None:
        raise InvariantBroken("the node's stdout is a pipe")
    readable, _, _ = select.select([output], [], [], READY_S_MAX)
    line = output.readline().decode() if readable else ""
    if match := _READY.match(line):
        return match[1]
    process.kill()
    process.wait()
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"no ready line within {READY_S_MAX:g} s"
    raise CliError(f"the node did not start ({why}): try `penstock serve` by itself")


def _stop(process: subprocess.Popen[bytes], *, kill: bool) -> None:
    if kill:
        process.kill()
    else:
        process.terminate()
    try:
        process.communicate(timeout=STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
