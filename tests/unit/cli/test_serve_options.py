"""The plain command line of `penstock serve`, and what it leaves to the full one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.cli.serve_node import ServeOptions, parse_plain


def test_options_in_both_forms() -> None:
    argv = ["--data-dir", "d", "--listen=h:1", "--listen", "h:2", "--http", "h:3"]
    argv += ["--config", "f.toml", "--set", "a=b=c", "--set=d="]
    assert parse_plain(argv) == ServeOptions("d", ["h:1", "h:2"], "h:3", "f.toml", ["a=b=c", "d="])
    assert parse_plain([]) == ServeOptions()
    assert parse_plain(["--http="]) == ServeOptions(http="")


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["-h"],
        ["--data-dir"],
        ["--data-dir", "--http", "x"],
        ["--data", "x"],
        ["extra"],
        ["--set", ""],
    ],
)
def test_what_is_not_plain_is_left_to_the_full_command_line(argv: list[str]) -> None:
    assert parse_plain(argv) is None


def test_serving_imports_no_client_and_no_command_line_library() -> None:
    script = (
        "import sys; sys.argv = ['penstock', 'serve', '--set', 'no.such=1']\n"
        "from penstock.cli import main\n"
        "assert main() == 2\n"
        "import penstock.node.main\n"
        "heavy = {'typer', 'rich', 'pydantic', 'confluent_kafka'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
