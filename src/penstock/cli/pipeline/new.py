"""`penstock pipeline new`: a small project that works as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.errors import EXIT_USAGE, CliError
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.scaffold import make


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new folder.")],
    declarative: Annotated[
        bool, typer.Option("--declarative", help="For Spark Declarative Pipelines.")
    ] = False,
    ready: Annotated[
        str | None,
        typer.Option("--from", metavar="PIPELINE", help="A copy of this ready pipeline."),
    ] = None,
) -> None:
    """Make a folder with a small working pipeline."""
    if declarative and ready is not None:
        raise CliError("give --declarative or --from, not both", EXIT_USAGE)
    try:
        files = make(Path(name), ready, is_declarative=declarative)
    except PipelineError as e:
        raise CliError(str(e)) from None
    print(f"made {name}: {', '.join(files)}")
    print(f"read {name}/README.md, then: penstock pipeline run {name}")
