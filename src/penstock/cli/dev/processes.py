"""The processes of a local cluster: started together, watched, and stopped one after the other.

Each node is a child of `penstock dev` in a session of its own, so that Ctrl-C reaches `dev` alone
and the nodes are stopped in turn: all but the last can then hand over and have it recorded. A node
that dies stays dead; when somebody else serves its folder, that process is the node from then on.
The kernel stops the children should `dev` itself be killed (on Linux).

One thread looks at everything from time to time; the signal handler only counts.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.cli.dev.folders import LocalNode
from penstock.cli.dev.formation import missing
from penstock.cli.errors import CliError
from penstock.cli.output import remark
from penstock.node.pid_file import read_pid, running_pid

POLL_S = 0.05
WATCH_S = 0.2
"""How often is looked while nodes start or stop, and while nothing is expected."""
PATIENCE_S = 5.0
LAST_PATIENCE_S = 1.0
"""How long a node may take to hand over; the last one has nobody to hand over to."""
STOP_S_MAX = 30.0
SLOW_START_S = 10.0
_LOG_TAIL_BYTES = 4096
_PR_SET_PDEATHSIG = 1


class NodeProcess:
    """The process of one node: our child, or whoever serves the folder after that died."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.pid: int | None = None
        self.is_ready = False
        self._child: subprocess.Popen[bytes] | None = None
        self._last_pid: int | None = None
        self._out = b""

    @property
    def name(self) -> str:
        return f"node {self.node.number}"

    def start(self) -> None:
        if (pid := running_pid(str(self.node.folder))) is not None:
            raise CliError(
                f"{self.name} runs already (process {pid}): stop it with `kill {pid}` first"
            )
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        with self.node.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [*command, "--config", str(self.node.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # `dev` has one thread
            )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self.pid = self._last_pid = self._child.pid

    def look(self) -> str | None:
        """Notices what has happened since the last look; returns it as words when it is news."""
        if self._child is not None:
            self._read_out()
            code = self._child.poll()
            if code is None:
                return None
            self._child = self.pid = None
            return _ending(code)
        if self.pid is not None:
            if running_pid(str(self.node.folder)) == self.pid:
                return None
            self.pid = None
            return "has ended"
        if read_pid(str(self.node.folder)) in (None, self._last_pid):
            return None
        self.pid = running_pid(str(self.node.folder))
        self._last_pid = self.pid or self._last_pid
        return f"is back as process {self.pid}" if self.pid is not None else None

    def _read_out(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        self._out += self._child.stdout.read() or b""
        self.is_ready |= self._out.startswith(b"ready: ") and b"\n" in self._out

    def send(self, number: int) -> None:
        """A signal to the process, if there is one."""
        if self.pid is not None:
            with suppress(ProcessLookupError):  # the next look will tell
                os.kill(self.pid, number)

    def last_words(self) -> str:
        """The last line of the log."""
        try:
            lines = self.node.log_path.read_bytes()[-_LOG_TAIL_BYTES:].splitlines()
        except OSError:
            return ""
        return lines[-1].decode(errors="replace").strip() if lines else ""


class LocalCluster:
    """All nodes of one folder; `client` has the settings by which they are asked, if any."""

    def __init__(self, nodes: list[LocalNode], client: Path | None = None) -> None:
        self._client = client
        self.processes = [NodeProcess(node) for node in nodes]
        self._stops = 0
        self._heeded = 0

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serves until SIGTERM or Ctrl-C."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            for process in self.processes:
                process.start()
            self._wait_ready()
            if not self._stops:
                on_ready()
            while not self._stops:
                time.sleep(WATCH_S)
                self._watch()
        finally:
            self._stop()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._stops += 1

    def _watch(self) -> None:
        for process in self.processes:
            news = process.look()
            if news is None:
                continue
            remark(f"{process.name} {news}")
            if process.pid is None:
                remark(
                    f"  the others go on; `penstock serve --config {process.node.config_path}`"
                    f" brings it back; its log is {process.node.log_path}"
                )

    def _wait_ready(self) -> None:
        """Goes on when every node serves, and the loss of one is no loss of the cluster."""
        slow = time.monotonic() + SLOW_START_S
        while not self._stops and (lacking := self._lacking()):
            if time.monotonic() > slow:
                remark(f"still waiting: {lacking}; the nodes' logs are in their folders")
                slow = time.monotonic() + SLOW_START_S
            time.sleep(POLL_S)

    def _lacking(self) -> str:
        """What is missing for the cluster to be ready, in words; `CliError` if it will not be."""
        for process in self.processes:
            news = process.look()
            if news is not None and not self._stops:
                raise CliError(
                    f"{process.name} {news} while it started: {process.last_words()}"
                    f" (see {process.node.log_path})"
                )
        waiting = [process.name for process in self.processes if not process.is_ready]
        if waiting:
            return f"{', '.join(waiting)} cannot serve yet"
        return missing((process.node for process in self.processes), self._client)

    def _stop(self) -> None:
        """One after the other, the first node last: where nothing moved it leads the metadata.

        A node that waits too long, as the last ones do once they are no quorum any more, is told
        again, which means not to wait. A second Ctrl-C tells all of them, a third kills.
        """
        for process in reversed(self.processes):
            process.send(signal.SIGTERM)
            begun = time.monotonic()
            is_last = process is self.processes[0]
            steps = [(LAST_PATIENCE_S if is_last else PATIENCE_S, signal.SIGTERM)]
            steps.append((STOP_S_MAX, signal.SIGKILL))
            while process.pid is not None:
                process.look()
                self._press()
                if steps and time.monotonic() - begun > steps[0][0]:
                    process.send(steps.pop(0)[1])
                time.sleep(POLL_S)

    def _press(self) -> None:
        """What further signals mean once the cluster is stopping."""
        if self._stops > max(self._heeded, 1):
            self._heeded = self._stops
            harder = signal.SIGTERM if self._stops == 2 else signal.SIGKILL
            for process in self.processes:
                process.send(harder)


def _end_with_parent() -> None:
    """Runs in the child before it becomes the node: it is to stop when `dev` is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
