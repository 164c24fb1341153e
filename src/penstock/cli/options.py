"""Options that many commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

BOOTSTRAP_DEFAULT = "localhost:9092"
TIMEOUT_S_DEFAULT = 10.0


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT[,HOST:PORT...]",
        help="Brokers to ask first.",
        show_default=True,
    ),
]
OutputFormat = Annotated[
    Format,
    typer.Option("--format", help="text for people, json for programs.", case_sensitive=False),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for the broker."),
]
TopicName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic.")]
TopicNames = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the topics.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated."),
]
