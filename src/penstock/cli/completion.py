"""`penstock completion`: what makes Tab complete commands and options in a shell.

The scripts are typer's. Unlike `--show-completion`, which looks which shell it is called from, this
takes the shell by name, so that packages and dotfiles can make them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
import typer.completion

_scripts: Any = typer.completion  # which exports what it imports without saying so
PROGRAM = "penstock"
VARIABLE = "_PENSTOCK_COMPLETE"
"""By which a shell's script asks what could come next."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that shall complete.")],
    install: Annotated[
        bool, typer.Option("--install", help="Add it to the files that the shell reads.")
    ] = False,
) -> None:
    """Print the script by which a shell completes commands and options, or install it."""
    if install:
        _, path = _scripts.install(shell=shell.value, prog_name=PROGRAM, complete_var=VARIABLE)
        print(f"installed in {path}: a new {shell.value} has it")
        return
    print(
        _scripts.get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)
    )
