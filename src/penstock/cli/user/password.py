"""Where a user's new password comes from: a file, the environment, or who is asked for it.

Never from the command line, which everybody on the machine can read. A file or a line of stdin is
taken without the end of its line. Limit: `PASSWORD_CHARS_MAX`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli.errors import usage_error

VARIABLE: Final = "PENSTOCK_USER_PASSWORD"
PASSWORD_CHARS_MAX: Final = 1_024

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help=f"File with the user's password, - for stdin; else {VARIABLE} of the environment,"
        " else it is asked for.",
    ),
]


def new_password(file: Path | None, user: str) -> bytes:
    """The password, which is not empty; asked for twice where a person is there."""
    if file is not None:
        found = sys.stdin.readline() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = found.removesuffix("\n").removesuffix("\r")
    elif VARIABLE in os.environ:
        found = os.environ[VARIABLE]
    elif sys.stdin.isatty():
        found = typer.prompt(
            f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        raise usage_error(
            f"nobody is here to be asked for the password of {user}: give --password-file, or set"
            f" {VARIABLE}"
        )
    if not found or len(found) > PASSWORD_CHARS_MAX:
        raise usage_error(f"a password has 1 to {PASSWORD_CHARS_MAX} characters")
    return found.encode()
