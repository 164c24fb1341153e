"""Where what is generated goes: stdout, or a file that is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OutputFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file, in place of stdout."),
]


def put(text: str, file: Path | None) -> None:
    if file is None:
        print(text, end="")
        return
    new = file.with_name(file.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)
