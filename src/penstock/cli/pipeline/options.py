"""Options that `run` and the commands of the ready pipelines share, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import typer

from penstock.cli.options import ConfigFile, Format, OptionGroup, OutputFormat, ProfileName, Xs

MASTER_DEFAULT = "local[*]"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,HOST:PORT...]",
        help="Brokers to ask first; else PENSTOCK_BOOTSTRAP of the environment, else what the"
        " project says, else localhost:9092.",
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
Create = Annotated[bool, typer.Option("--create", help="Make topics to write to that are missing.")]


@dataclass(frozen=True)
class RunOptions(OptionGroup):
    """How a pipeline is run, as the command line says it."""

    bootstrap: str | None = None
    master: str | None = None
    settings: Sequence[str] = ()
    conf: Sequence[str] = ()
    name: str | None = None
    restarts: int | None = None
    create: bool = False
    output: Format = Format.TEXT
    xs: Sequence[str] = ()
    config_file: str | None = None
    profile: str | None = None

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        "master": (Master, None),
        "settings": (Settings, None),
        "conf": (Conf, None),
        "name": (Name, None),
        "restarts": (Restarts, None),
        "create": (Create, False),
        "output": (OutputFormat, Format.TEXT),
        "bootstrap": (Bootstrap, None),
        "xs": (Xs, None),
        "config_file": (ConfigFile, None),
        "profile": (ProfileName, None),
    }

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        lists = {name: options[name] or () for name in ("settings", "conf", "xs")}
        return cls(**{**options, **lists})
