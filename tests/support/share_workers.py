"""Processes whose members of a share group acknowledge all that they get, and what they said.

What must hold of all of them together is in `check`: no record that was acknowledged came again,
and no two acknowledgements of a record succeeded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .reference import java_command
from .waiting import CALL_SECONDS_MAX

JAVA = Path(__file__).resolve().parents[1] / "interop" / "java" / "ShareWorker.java"
PYTHON = Path(__file__).with_name("share_worker.py")
STOP_SECONDS_MAX = 60.0

Place = tuple[int, int]
"""Partition and offset."""


class Said(NamedTuple):
    """Of one record: it was delivered, or acknowledged, or to acknowledge it failed."""

    at_ms: int
    what: str
    place: Place
    delivery_count: int


class ShareWorker:
    """One process with some members."""

    def __init__(
        self, client: str, bootstrap: str, group: str, topic: str, members: int = 1, **settings: str
    ) -> None:
        args = [bootstrap, group, topic, str(members)]
        args += [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        command = {
            "java": java_command(str(JAVA), *args),
            "confluent": [sys.executable, str(PYTHON), *args],
        }[client]
        self.said: list[Said] = []
        self.was_killed = False
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not text.endswith("\n"):
                return  # it was killed while it wrote
            line = json.loads(text)
            for what in ("got", "acked", "failed"):
                self.said += [
                    Said(line["at"], what, (partition, offset), count)
                    for partition, offset, count in line.get(what, ())
                ]

    @property
    def has_work(self) -> bool:
        return any(said.what == "got" for said in list(self.said))

    def kill(self) -> None:
        """kill -9: nothing is said to anybody."""
        self.was_killed = True
        self._process.kill()
        self._ended()

    def stop(self) -> None:
        """Its members leave the group; a fault of theirs is told."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the members of a share group do not leave") from None
        self._ended()
        assert code == 0, f"a member of a share group failed: {code}"

    def _ended(self) -> None:
        self._process.wait(CALL_SECONDS_MAX)
        self._reader.join(CALL_SECONDS_MAX)

    def end(self) -> None:
        """However it is by now, it is no more."""
        if self._process.poll() is None:
            self.kill()


def check(workers: Sequence[ShareWorker], delivery_count_limit: int) -> None:
    """Deliveries are told by their count: a client may hold one back that is over by now, and hand
    it out later.
    """
    said = sorted(line for worker in workers for line in worker.said)
    acked: dict[Place, int] = {}
    for line in said:
        assert 1 <= line.delivery_count <= delivery_count_limit, line
        if line.what == "acked":
            assert line.place not in acked, f"acknowledged twice: {line}"
            acked[line.place] = line.delivery_count
    for line in said:
        if line.what == "got" and line.place in acked:
            assert line.delivery_count <= acked[line.place], f"came after its end: {line}"


def settled(workers: Sequence[ShareWorker]) -> set[Place]:
    """The records that were acknowledged, or may have been: nobody was told in time."""
    found: set[Place] = set()
    for worker in workers:
        wanted = ("got", "acked", "failed") if worker.was_killed else ("acked", "failed")
        found |= {said.place for said in list(worker.said) if said.what in wanted}
    return found
