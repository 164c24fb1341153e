"""What docs/deploy.md tells to do works, from the first start to the loss of the quorum.

Its files and commands are taken from the page itself. systemd is played by this test: `systemctl
start penstock@N` starts what the unit starts, with the page's file for node N; machines are ports
of 127.0.0.1, and the folders lie below the test's own. What the reader's machines do by themselves
(being lost) stands in the page as a comment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.process import free_port
from support.waiting import eventually

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
MACHINES = {1: "alpha", 2: "beta", 3: "gamma", 4: "delta"}
COMMAND_SECONDS_MAX = 120
START_SECONDS_MAX = 60
MESSAGES = 500
STEP = re.compile(
    r"^```console\n(?P<commands>.*?)^```|^<!-- the tests lose: (?P<lost>[\d ]+) -->",
    re.MULTILINE | re.DOTALL,
)
SYSTEMCTL = re.compile(r"systemctl (enable --now|disable --now|start|stop|restart) penstock@(\d)")


class Machines:
    """Plays systemd and the disks of the page's four machines."""

    def __init__(self, root: Path, page: str) -> None:
        self.root = root
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, str] = {}
        self._just_started = False
        for name in MACHINES.values():
            for port in (9092, 8082):
                self._addresses[f"{name}.example:{port}"] = f"127.0.0.1:{free_port()}"
        first, fourth = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for number in (1, 2, 3):
            self._write_config(number, self._as_node(first, number))
        self._write_config(4, fourth)

    def _as_node(self, text: str, number: int) -> str:
        """The first file with number, rack, addresses and folder of another node."""
        voters = re.search(r"^controller.quorum.voters.*$", text, re.MULTILINE)
        assert voters is not None
        own = text.replace("alpha", MACHINES[number]).replace("penstock/1", f"penstock/{number}")
        own = own.replace("node.id = 1", f"node.id = {number}")
        return re.sub(r"^controller.quorum.voters.*$", voters[0], own, flags=re.MULTILINE)

    def _write_config(self, number: int, text: str) -> None:
        self.root.joinpath(f"{number}.toml").write_text(self.here(text))

    def here(self, text: str) -> str:
        """The page's text with this machine's addresses and folders."""
        for there, address in self._addresses.items():
            text = text.replace(there, address)
        return text.replace("/var/lib/penstock", str(self.root))

    @property
    def bootstrap(self) -> str:
        return ",".join(self._addresses[f"{name}.example:9092"] for name in MACHINES.values())

    def start(self, number: int) -> None:
        command = [sys.executable, "-m", "penstock.cli", "serve"]
        with self.root.joinpath(f"{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [*command, "--config", str(self.root / f"{number}.toml")], stdout=log, stderr=log
            )

    def stop(self, number: int) -> None:
        self._processes[number].terminate()
        assert self._processes[number].wait(COMMAND_SECONDS_MAX) == 0, self.log(number)

    def lose(self, number: int) -> None:
        """The process and its disk are gone."""
        self._processes[number].kill()
        self._processes[number].wait()
        shutil.rmtree(self.root / str(number))

    def log(self, number: int) -> str:
        return self.root.joinpath(f"{number}.log").read_text()[-4000:]

    def logs(self) -> str:
        return "\n".join(f"--- node {n}\n{self.log(n)}" for n in self._processes)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def metrics(self, number: int) -> str:
        address = self._addresses[f"{MACHINES[number]}.example:8082"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    # Commands

    def run(self, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", self.here(command)],
            input=stdin,
            env={**os.environ, "PATH": path, "PENSTOCK_BOOTSTRAP": self.bootstrap},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def carry_out(self, commands: str) -> None:
        """A block of the page; what follows a start may have to wait for it."""
        for line in commands.splitlines():
            mark, _, command = line.partition(" ")
            if mark == "#":
                self._systemctl(command)
                self._just_started = True
                continue
            assert mark == "$", line
            self._run_well(command, START_SECONDS_MAX if self._just_started else 0)
            self._just_started = False

    def _run_well(self, command: str, seconds: float) -> None:
        def done() -> bool:
            ended = self.run(command)
            assert ended.returncode == 0, f"$ {command}\n{ended.stdout}{ended.stderr}{self.logs()}"
            return True

        eventually(done, seconds) if seconds else done()

    def _systemctl(self, command: str) -> None:
        parts = SYSTEMCTL.fullmatch(command)
        assert parts is not None, command
        verb, number = parts[1], int(parts[2])
        if verb in ("stop", "disable --now", "restart"):
            self.stop(number)
        if verb in ("start", "enable --now", "restart"):
            self.start(number)


@contextmanager
def machines(root: Path, page: str) -> Iterator[Machines]:
    played = Machines(root, page)
    try:
        yield played
    finally:
        played.close()


@pytest.mark.penstock_only
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_on_the_page_in_its_order(tmp_path: Path) -> None:
    page = PAGE.read_text()
    lines = "".join(f"{i}\n" for i in range(MESSAGES))
    published = False
    with machines(tmp_path, page) as played:
        for step in STEP.finditer(page):
            if step["lost"]:
                for number in map(int, step["lost"].split()):
                    played.lose(number)
                continue
            played.carry_out(step["commands"])
            if "topic create orders" in step["commands"]:
                done = played.run("penstock topic produce orders --acks all", lines)
                assert done.returncode == 0, done.stderr
                published = True
        assert published
        kept = played.run("penstock topic consume orders").stdout.split()
        assert sorted(map(int, kept)) == list(range(MESSAGES)), "no step loses a message"
        done = played.run("penstock topic produce orders --acks all", "one more\n")
        assert done.returncode == 0, done.stderr
        shown = played.metrics(1)
        for name in sorted(set(re.findall(r"`(penstock_\w+)`", page))):
            assert f"# TYPE {name} " in shown, name


def test_the_unit_starts_a_node_from_its_file() -> None:
    unit = re.search(r"^ExecStart=(.*)$", PAGE.read_text(), re.MULTILINE)
    assert unit is not None
    program, *arguments = unit[1].split()
    assert Path(program).name == "penstock"
    assert arguments == ["serve", "--config", "/etc/penstock/%i.toml"]
