"""What a loss of power takes where a directory is removed and another gets its name."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from .disk import PARTITION_METADATA, Disk, Os
from .trace import Trace

SEEDS = 40
LOG = "00000000000000000000.log"


class Machine:
    """A disk with the `os` of its process, and what is in its directories."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = str(root / "n1")
        self.trace = Trace(lambda: 0.0)
        self.disk = Disk("n1", self.root, random.Random(seed), self.trace)
        self.os = Os()
        self.os.disks = [self.disk]

    def write(self, directory: str, name: str, data: bytes) -> None:
        path = os.path.join(self.root, directory, name)
        fd = self.os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT)
        self.os.pwrite(fd, data, 0)
        self.os.close(fd)
        self.os.rename(path + ".tmp", path)

    def make(self, directory: str, topic_id: bytes) -> None:
        self.os.mkdir(os.path.join(self.root, directory))
        self.write(directory, PARTITION_METADATA, topic_id)
        self.write(directory, LOG, topic_id)

    def sync(self, directory: str) -> None:
        """All of a directory, and its name."""
        at = os.path.join(self.root, directory)
        for path in (*(os.path.join(at, name) for name in os.listdir(at)), at, self.root):
            fd = self.os.open(path, os.O_RDONLY)
            self.os.fsync(fd)
            self.os.close(fd)

    def remove(self, directory: str) -> None:
        path = os.path.join(self.root, directory)
        self.os.rename(path, path + ".1-delete")

    def content(self) -> dict[str, dict[str, bytes]]:
        root = Path(self.root)
        return {d.name: {f.name: f.read_bytes() for f in d.iterdir()} for d in root.iterdir()}


@pytest.fixture(params=range(SEEDS))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, request.param)


def test_what_was_synced_stays_where_another_gets_its_name(machine: Machine) -> None:
    """Whether the old directory has its old name again or not."""
    machine.make("t-0", b"first")
    machine.sync("t-0")
    machine.remove("t-0")
    machine.make("t-0", b"second")
    machine.disk.lose_power()
    first = {PARTITION_METADATA: b"first", LOG: b"first"}
    assert first in machine.content().values()


def test_the_new_one_keeps_what_was_synced_and_not_what_the_old_one_lacked(
    machine: Machine,
) -> None:
    machine.make("t-0", b"first")
    machine.remove("t-0")
    machine.make("t-0", b"second")
    machine.sync("t-0")
    machine.disk.lose_power()
    assert machine.content()["t-0"] == {PARTITION_METADATA: b"second", LOG: b"second"}


def test_a_replica_that_comes_back_is_told_from_a_topic_that_is_made_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0)
    for topic_id in (b"first", b"first", b"second"):
        machine.make("t-0", topic_id)
        machine.remove("t-0")
        shutil.rmtree(f"{machine.root}/t-0.1-delete")
    counts = machine.trace.paths.counts
    assert (counts["replica removed"], counts["replica came back"]) == (3, 1)
    assert counts["topic made again"] == 1
