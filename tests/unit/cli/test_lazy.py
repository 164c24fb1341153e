"""Commands are found without being imported: tables, help, completion, and what start-up costs."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock.cli
from penstock.cli.app import RootGroup
from penstock.cli.lazy import LazyCommand, LazyGroup

CLI = Path(penstock.cli.__file__).parent

HEAVY = ("confluent_kafka", "rich", "pyspark", "pyarrow", "penstock.node", "penstock.wire.messages")

IMPORTS_INSIDE = {
    ("__init__.py", "penstock.cli.serve_node"): "a node runs without typer",
    ("__init__.py", "penstock.cli.app"): "all other commands run without the node's settings",
    ("serve_node.py", "penstock.node.main"): "wrong settings are told before the node is imported",
    ("output.py", "penstock.cli.terminal"): "rich is imported for a terminal only",
    ("pipeline/view.py", "penstock.cli.pipeline.live_view"): "rich is imported for a terminal only",
    ("pipeline/run.py", "penstock.spark.pipeline.preflight"): "help imports it, and asks no broker",
}
"""File and module of each import that stands inside a function, and why."""


def commands(group: LazyGroup, *path: str) -> Iterator[tuple[str, LazyCommand, Any]]:
    """Every line of every table: its command line, what stands for it, and the command itself."""
    for name in group.verbs:
        lazy = group.commands[name]
        assert isinstance(lazy, LazyCommand)
        command = lazy.load()
        yield " ".join((*path, name)), lazy, command
        if isinstance(command, LazyGroup):
            yield from commands(command, *path, name)


def python(script: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def output_of_light(argv: list[str], **environment: str) -> str:
    """What a command line prints; it must import nothing heavy."""
    return python(
        f"import sys; sys.argv = ['penstock', *{argv!r}]\n"
        "from penstock.cli import main\n"
        "assert main() == 0\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not heavy, heavy\n",
        **environment,
    )


def completed_by_bash(line: str) -> list[str]:
    """What Tab offers at the end of `line`; nothing heavy may be imported for it."""
    words = line.split(" ")
    offered = output_of_light(
        [], _PENSTOCK_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    return offered.split()


def test_tables_tell_what_the_commands_tell() -> None:
    seen = 0
    for line, lazy, command in commands(RootGroup(name="penstock")):
        first_paragraph = inspect.cleandoc(command.help).partition("\n\n")[0]
        assert lazy.help == " ".join(first_paragraph.split()), line
        assert command.name == lazy.name == line.split()[-1]
        seen += 1
    assert seen > len(RootGroup.verbs)


@pytest.mark.parametrize("what", ["dashboard", "alerts"])
def test_what_is_generated_needs_nothing_heavy(what: str) -> None:
    assert len(output_of_light(["generate", what])) > 5_000


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["topic"],
        ["group"],
        ["txn"],
        ["cluster"],
        ["pipeline"],
        ["generate"],
        ["bench"],
        ["user"],
        ["role"],
        ["quota"],
        ["token"],
    ],
)
def test_help_lists_every_command_and_imports_nothing_heavy(argv: list[str]) -> None:
    group: Any = RootGroup(name="penstock")
    for name in argv:
        group = group.commands[name].load()
    shown = output_of_light([*argv, "--help"])
    lines = shown.partition("Commands:\n")[2].splitlines()
    rows = [line.split() for line in lines if line[:3].strip()]  # not where a text goes on
    listed = {row[0]: row[1] for row in rows}
    assert group.verbs
    for name, verb in group.verbs.items():
        assert listed[name] == verb.help.split()[0]


def test_the_version_imports_nothing_heavy() -> None:
    assert output_of_light(["--version"]).startswith("penstock ")


def test_the_package_imports_nothing_heavy_and_no_typer() -> None:
    script = (
        f"import sys; import penstock.cli\n"
        f"print([name for name in ('typer', *{HEAVY!r}) if name in sys.modules])"
    )
    assert python(script) == "[]\n"


def test_no_command_needs_spark_or_a_terminal_to_be_imported() -> None:
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = sys.modules['rich'] = None\n"
        "from penstock.cli.app import RootGroup\n"
        "def load(group):\n"
        "    for name in group.verbs:\n"
        "        command = group.commands[name].load()\n"
        "        if hasattr(command, 'verbs'): load(command)\n"
        "load(RootGroup(name='penstock'))\n"
    )
    python(script)


def test_help_of_a_verb_imports_that_verb_alone() -> None:
    script = (
        "import sys; sys.argv = ['penstock', 'topic', 'list', '--help']\n"
        "from penstock.cli import main\n"
        "assert main() == 0\n"
        "verbs = [m for m in sys.modules if m.startswith('penstock.cli.topic.')]\n"
        "assert verbs == ['penstock.cli.topic.list_topics'], verbs\n"
    )
    assert "--internal" in python(script)


def test_completion_of_commands_and_options() -> None:
    assert completed_by_bash("penstock t") == ["topic", "txn", "token"]
    assert completed_by_bash("penstock topic de") == ["describe", "delete"]
    assert completed_by_bash("penstock pipeline st") == ["status", "stop"]
    assert "archive" in completed_by_bash("penstock pipeline a")
    assert completed_by_bash("penstock serve --da") == ["--data-dir"]


def test_completion_can_be_installed() -> None:
    script = output_of_light([], _PENSTOCK_COMPLETE="source_bash")
    assert "complete -o default -F _penstock_completion penstock" in script
    assert "--install-completion" in output_of_light(["--help"])


def imports_inside_functions() -> set[tuple[str, str]]:
    found = set()
    for path in sorted(CLI.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                file = path.relative_to(CLI).as_posix()
                if isinstance(node, ast.Import):
                    found |= {(file, alias.name) for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module == "penstock.cli":
                    found |= {(file, f"penstock.cli.{alias.name}") for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add((file, str(node.module)))
    return found


def test_imports_stand_at_the_top_of_each_module() -> None:
    assert imports_inside_functions() == set(IMPORTS_INSIDE)
