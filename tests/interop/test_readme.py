"""What the README shows works: its Python, and the two commands that `make run` prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
AUTO_CREATE = {"auto.create.topics.enable": "true"}


def test_the_python_example(fresh_node: Callable[..., BrokerProcess]) -> None:
    node = fresh_node(settings=AUTO_CREATE)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert "localhost:9092" in code
    code = code.replace("localhost:9092", node.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "b'alice' b'hello, world' 0", done.stderr


@pytest.mark.penstock_only
def test_the_commands_that_make_run_prints(fresh_node: Callable[..., BrokerProcess]) -> None:
    node = fresh_node(settings=AUTO_CREATE)
    printed = subprocess.run(
        ["make", "-n", "run", f"LISTEN={node.bootstrap}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    commands = re.findall(r"echo '  (.*)'$", printed, re.MULTILINE)
    assert len(commands) == 2
    # Wherever this interpreter lives, its penstock is the one to run.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    outputs = [
        subprocess.run(
            command.replace(".venv/bin/penstock", "penstock"),
            shell=True,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for command in commands
    ]
    assert "hello, world" in outputs[1]
