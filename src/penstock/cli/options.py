"""Options that many commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, get_type_hints

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
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,HOST:PORT...]",
        help="Brokers to ask first; else PENSTOCK_BOOTSTRAP of the environment, else"
        f" {BOOTSTRAP_DEFAULT}.",
    ),
]
Xs = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A setting of the Kafka client, such as security.protocol=SASL_SSL; may be repeated."
        " Also PENSTOCK_X_SECURITY_PROTOCOL and the like in the environment.",
    ),
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        "--command-config",
        metavar="FILE",
        help="File with such settings, key=value lines or TOML; else PENSTOCK_CONFIG of the"
        " environment.",
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Settings that `penstock profile set` has stored, instead of a file; else"
        " PENSTOCK_PROFILE of the environment, else the profile in use.",
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
TopicNames = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of the topics.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-config", "-c", metavar="KEY=VALUE", help="A topic setting; may be repeated."
    ),
]


class OptionGroup(ABC):
    """The type of a parameter that several options say together."""

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]]
    """Names, with the annotation and the default of each."""

    @classmethod
    @abstractmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        """What the options come to."""


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with the options of a group, at the end, for each parameter of that type."""
    hints = get_type_hints(function, include_extras=True)
    groups = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, OptionGroup)
    }

    def command(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group.of_options({option: given.pop(option) for option in group.OPTIONS})
        return function(**given)

    own = inspect.signature(function).parameters.values()
    parameters = [keyword(p.name, hints[p.name], p.default) for p in own if p.name not in groups]
    parameters += [
        keyword(name, kind, default)
        for group in groups.values()
        for name, (kind, default) in group.OPTIONS.items()
    ]
    return shaped(command, parameters, function.__doc__)


def keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def shaped(
    function: Callable[..., Any], parameters: list[inspect.Parameter], text: str | None
) -> Callable[..., Any]:
    """`function`, which typer shall take for one with these parameters and this docstring."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    function.__doc__ = text
    return function
