"""`penstock pipeline` as a user runs it: a process, its JSON lines, and the commands beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from .process import BrokerProcess
from .spark_settings import QUICK_JVM
from .waiting import eventually

RUN_SECONDS_MAX = 400.0
"""To start Spark, and once more, on a machine that is busy."""
SPARK = (
    *("--master", "local[2]", "--conf", "spark.driver.memory=1g"),
    *(word for name, value in QUICK_JVM.items() for word in ("--conf", f"{name}={value}")),
)


class Pipelines:
    """The commands, with a state folder of their own."""

    def __init__(self, folder: Path, node: BrokerProcess) -> None:
        self.folder = folder
        self._environment = os.environ | {
            "PENSTOCK_STATE_DIR": str(folder / "state"),
            "PENSTOCK_BOOTSTRAP": node.bootstrap,
        }

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli", "pipeline", *words],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self.command(*words, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str) -> Running:
        return Running(
            subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", "pipeline", *words, "--format", "json"],
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def log(self, name: str) -> str:
        return (self.folder / "state" / "pipelines" / name / "log").read_text()


class Running:
    """A run with `--format json`; its lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def wait_for(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The event of this kind that makes them `count`."""

        def there() -> bool:
            assert self.process.poll() is None or len(self.of(kind)) >= count, self.told()
            return len(self.of(kind)) >= count

        eventually(there, RUN_SECONDS_MAX)
        return self.of(kind)[count - 1]

    def wait(self) -> int:
        code = self.process.wait(RUN_SECONDS_MAX)
        self._reader.join()
        return code

    def told(self) -> str:
        return "\n".join(map(str, self.events))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
