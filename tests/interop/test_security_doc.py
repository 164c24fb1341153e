"""docs/security.md from a bare node to a locked one: its files and commands in their order."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.process import free_port
from support.waiting import eventually

pytestmark = [
    pytest.mark.penstock_only,
    pytest.mark.xdist_group("security"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no `openssl` on the PATH"),
]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
ALONE = PAGE.partition("\n## From plain to locked")[0]
"""`test_roll_to_security` has the rest."""
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", ALONE, re.MULTILINE | re.DOTALL)
SERVE = "penstock serve --config node.properties\n"
COMMAND_SECONDS_MAX = 60


class Reader:
    """Somebody who does what the page says, in a folder, with ports of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {"9093": str(free_port()), "8082": str(free_port())}
        self._node: subprocess.Popen[bytes] | None = None
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "ANN_PASSWORD": "of ann"}

    def here(self, text: str) -> str:
        return re.sub(r"\b(9093|8082)\b", lambda found: self._ports[found[0]], text)

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def bash(self, text: str) -> str:
        return self.run(["bash", "-ec", self.here(text)])

    def serve(self) -> None:
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self._node = subprocess.Popen(
                ["bash", "-c", "exec " + SERVE],
                cwd=self.folder,
                env=self._environment,
                stdout=out,
                stderr=err,
            )
        eventually(lambda: "ready:" in (self.folder / "out").read_text())

    def stop(self) -> None:
        if self._node is not None:
            self._node.terminate()
            assert self._node.wait(30) == 0


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.stop()


@pytest.mark.timeout(180)
def test_everything_on_the_page_in_its_order(reader: Reader) -> None:
    files = iter(["node.properties", "admin.properties"])
    said = ""
    for kind, text in BLOCKS:
        if kind == "properties":
            (reader.folder / next(files)).write_text(reader.here(text))
        elif kind == "python":
            reader.run([sys.executable, "-c", reader.here(text)])
        elif text == SERVE:
            reader.serve()
        else:
            said += reader.bash(text)
    assert next(files, None) is None
    assert "one order" in said
    log = (reader.folder / "err").read_text()
    assert "ERROR" not in log
    assert "change-me" not in log
