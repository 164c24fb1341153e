"""Options that `run` and the commands of the ready pipelines share, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from penstock.cli.options import Format

MASTER_DEFAULT = "local[*]"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT[,HOST:PORT...]",
        help="Brokers to ask first; else what the project says, else localhost:9092.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://URL; else local[*].",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting of the pipeline, or kafka.*; may be repeated."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Spark configuration; may be repeated."),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of this run, for list, status and stop."),
]
Restarts = Annotated[
    int | None,
    typer.Option(
        "--restarts",
        min=0,
        metavar="N",
        help="How often a pipeline that fails is started again; else without end.",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """How a pipeline is run, as the command line says it."""

    bootstrap: str | None = None
    master: str | None = None
    settings: Sequence[str] = field(default_factory=tuple)
    conf: Sequence[str] = field(default_factory=tuple)
    name: str | None = None
    restarts: int | None = None
    output: Format = Format.TEXT
