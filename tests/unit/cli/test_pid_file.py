"""`penstock.pid`: right while a process serves the folder, never mistaken afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.node.pid_file import pid_file, read_pid, running_pid

HOLD = (
    "import sys; from penstock.node.pid_file import pid_file\n"
    "with pid_file(sys.argv[1]):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


def holder(folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_the_file_is_there_while_the_process_is(tmp_path: Path) -> None:
    folder = str(tmp_path / "new")
    with pid_file(folder):
        assert Path(folder, "penstock.pid").read_text() == f"{os.getpid()}\n"
        assert running_pid(folder) == os.getpid()
    assert not Path(folder, "penstock.pid").exists()
    assert running_pid(folder) is None


def test_what_a_killed_process_left_does_not_count(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        assert running_pid(str(tmp_path)) == process.pid
        process.kill()
        process.wait()
        assert read_pid(str(tmp_path)) == process.pid
        assert running_pid(str(tmp_path)) is None
    with holder(tmp_path) as process:
        assert running_pid(str(tmp_path)) == process.pid
        process.kill()


def test_a_second_process_leaves_the_file_alone(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pid_file(str(tmp_path)):
            assert running_pid(str(tmp_path)) == process.pid
        assert read_pid(str(tmp_path)) == process.pid
        process.kill()


def test_a_folder_that_cannot_be_had_is_left_to_the_node(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pid_file(str(file / "below")):
        assert read_pid(str(file / "below")) is None
