"""The help of every command is made of whole sentences, and fits a narrow terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from penstock.cli.app import build_app
from penstock.cli.lazy import LazyCommand

COLUMNS = 60
_USAGE = re.compile(r"Usage: .*?\n\n", re.DOTALL)
_CUT = re.compile(r"\.\.\.$", re.MULTILINE)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The command and everything below it."""
    yield path, command
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    for name in names:
        found = command.get_command(None, name)
        loaded = found.load() if isinstance(found, LazyCommand) else found
        yield from commands(loaded, f"{path} {name}")


ALL = dict(commands(typer.main.get_command(build_app()), "penstock"))


@pytest.mark.parametrize("path", ALL)
def test_help(path: str) -> None:
    command = ALL[path]
    context = command.context_class(
        command, info_name=path, terminal_width=COLUMNS, max_content_width=COLUMNS
    )
    text = command.get_help(context)
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    assert not _CUT.search(_USAGE.sub("", text)), text
    assert command.help.endswith((".", ".\n")), command.help
    for parameter in command.params:
        said = re.sub(r"  \[.*\]$", "", parameter.help or "")  # a default, or that it is required
        assert said.endswith("."), f"{parameter.name}: {said}"
