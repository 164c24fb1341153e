"""Groups of commands whose modules are imported only when one of their commands is asked for.

A group has a table: the name of a command, the place of its function as "module:attribute", and
the line that a list of commands shows. A list of commands and the completion of a name are
answered from the table alone. Running a command, showing its help or completing its options
imports its module, and no other's. So every module under `cli/` imports what it needs at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from penstock.cli.options import spread


class Verb(NamedTuple):
    """One line of a group's table."""

    place: str
    """`module:attribute` of a function, or of a `LazyGroup`."""

    help: str
    """The first paragraph of the function's docstring; all the help that a group has."""


class WholeHelp(TyperCommand):
    """A command whose line in lists and in completions is wrapped, not cut with dots."""

    def get_short_help_str(self, limit: int = 0) -> str:
        return (self.help or "").partition("\n\n")[0]


class LazyCommand(WholeHelp):
    """Stands for a command in lists, and makes way for it when it is asked for more."""

    def __init__(self, name: str, verb: Verb) -> None:
        super().__init__(name, help=verb.help, rich_markup_mode=None)
        self._place = verb.place

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        """The context of the command itself; whoever invokes or completes it goes on with that."""
        return self.load().make_context(info_name, args, *more, **named)

    def load(self) -> Any:
        """The command that this one stands for."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, type):
            return found(
                name=self.name, help=self.help, no_args_is_help=True, rich_markup_mode=None
            )
        return command_of(self.name, found)


class LazyGroup(TyperGroup):
    """A group whose commands are the lines of `verbs`, in their order."""

    verbs: ClassVar[Mapping[str, Verb]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in self.verbs.items():
            self.add_command(LazyCommand(name, verb))


def command_of(name: str | None, function: Callable[..., Any]) -> Any:
    """The command whose options are the parameters of `function`."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, cls=WholeHelp)(spread(function))
    return typer.main.get_command(app)
