"""The transactional workers of a run, as processes, and the readers of what they commit.

A worker that ends by itself is replaced by another with its transactional id, as a supervisor would
do it. Faults upon workers (`Workers.kill`, `Workers.displace`) come from the nemesis's thread, the
replacements from a thread of their own; a lock keeps them apart.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from .history import CommittedRead, Ended, Ending, Initialised, Partition, Recorder, Trouble
from .txn_worker import GONE, Job
from .workload import IMPATIENT, NEVER, Client, Plan, Servers

ROOT = Path(__file__).resolve().parents[3]
REPLACE_EVERY_SECONDS = 0.2
STOP_SECONDS_MAX = 90.0


class Workers(Client):
    """Starts the workers and starts anew those that end."""

    def __init__(self, servers: Servers, plan: Plan, recorder: Recorder, folder: Path) -> None:
        super().__init__("workers", recorder)
        self._servers = servers
        self._plan = plan
        self._folder = folder
        self._lock = threading.Lock()
        self._current: dict[str, subprocess.Popen[bytes]] = {}
        self._displaced: list[subprocess.Popen[bytes]] = []
        names = [f"writer-{i}" for i in range(plan.writers)]
        names += [f"chain-{i}" for i in range(plan.chains)]
        self.names = names

    def work(self) -> None:
        for name in self.names:
            with self._lock:
                self._start(name)
        while not self.stopping.wait(REPLACE_EVERY_SECONDS):
            with self._lock:
                for name, process in list(self._current.items()):
                    if process.poll() is not None:
                        self._ended(name, process.returncode)
                        self._start(name)

    def _ended(self, name: str, code: int) -> None:
        if code not in (0, GONE, -signal.SIGKILL):
            self.trouble(f"{name} ended with {code}: {self._said(name)[-1000:]}")

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text(errors="replace")

    def _start(self, name: str) -> None:
        plan = self._plan
        job = Job(
            name.partition("-")[0],
            name,
            dict(self._servers),
            plan.topic,
            plan.target,
            plan.target_partitions,
            str(self._folder / f"{name}.jsonl"),
        )
        argv = [sys.executable, "-m", "tests.chaos.cluster.txn_worker", json.dumps(job._asdict())]
        with (self._folder / f"{name}.err").open("ab") as err:
            self._current[name] = subprocess.Popen(argv, cwd=ROOT, stderr=err)

    # Faults

    def kill(self, name: str) -> None:
        """kill -9; another takes its place."""
        with self._lock:
            self._current[name].kill()

    def displace(self, name: str) -> subprocess.Popen[bytes]:
        """STOP a worker and start another in its place: a zombie, once it goes on."""
        with self._lock:
            process = self._current[name]
            process.send_signal(signal.SIGSTOP)
            self._displaced.append(process)
            self._start(name)
            return process

    # The end

    def stop_writers(self) -> None:
        self._terminate([n for n in self.names if n.startswith("writer")])

    def stop_all(self) -> None:
        """No worker runs when this returns; what they said is in the record."""
        self._terminate([n for n in self.names if n in self._current])
        for process in self._displaced:
            process.send_signal(signal.SIGCONT)
        self._wait(self._displaced)
        for path in sorted(self._folder.glob("*.jsonl")):
            self.recorder.load(path, (Initialised, Ending, Ended))

    def _terminate(self, names: Iterable[str]) -> None:
        with self._lock:
            processes = [self._current.pop(name) for name in names]
        for process in processes:
            process.terminate()
        self._wait(processes)

    def _wait(self, processes: Iterable[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.trouble("a worker does not end")

    def close(self) -> None:
        """Whatever happened, nothing is left running."""
        self.stopping.set()
        if self.ident is not None:
            self.join()
        for process in [*self._current.values(), *self._displaced]:
            process.kill()
            process.wait()


class CommittedReader(Client):
    """Follows the workers' partitions, reading only what is committed."""

    def __init__(
        self, name: str, servers: Servers, partitions: Iterable[Partition], recorder: Recorder
    ) -> None:
        super().__init__(name, recorder)
        self._partitions = list(partitions)
        self._client = Consumer(
            {
                **servers,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                **IMPATIENT,
            }
        )

    def work(self) -> None:
        self._client.assign([TopicPartition(t, p, 0) for t, p in self._partitions])
        while not self.stopping.is_set():
            called = self.recorder.now()
            for message in self._client.consume(500, timeout=0.1):
                self._record(called, message)
        self._client.close()

    def _record(self, called: float, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.code() in NEVER or error.fatal():
                text = f"{NEVER.get(error.code(), 'a fatal error')}: {error}"
                self.recorder.add(Trouble(self.recorder.now(), self.name, text))
            return
        self.recorder.add(
            CommittedRead(
                called,
                self.recorder.now(),
                self.name,
                (message.topic(), message.partition()),
                message.offset(),
                message.value().decode(),
            )
        )
