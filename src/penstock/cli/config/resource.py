"""Whose settings are meant, and the two requests about them.

`cluster` is the default of all brokers; a broker's own settings count above it. Kafka describes and
changes those of a broker only on that very broker, so it has to be there.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeVar

import typer

from penstock.cli.cluster.asking import Brokers, check
from penstock.cli.cluster.configs import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Change,
    alter_request,
    describe_request,
)
from penstock.cli.cluster.options import require_node
from penstock.cli.cluster.state import Node, read_nodes
from penstock.cli.errors import CliError, usage_error
from penstock.config.layers import ConfigSource
from penstock.kafka.client import unreachable, why
from penstock.wire.messages.describe_configs import DescribeConfigsResponse
from penstock.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from penstock.wire.schema import Message

_R = TypeVar("_R", bound=Message)

ResourceName = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="broker:ID, client-metrics:NAME, cluster (the default of all brokers), group:NAME or "
        "topic:NAME.",
    ),
]
_KINDS = {"broker": BROKER, "client-metrics": CLIENT_METRICS, "group": GROUP, "topic": TOPIC}


class Resource(NamedTuple):
    kind: int
    name: str
    """Empty for the cluster."""

    def __str__(self) -> str:
        if self.kind == BROKER and not self.name:
            return "the cluster"
        kind = next(word for word, number in _KINDS.items() if number == self.kind)
        return f"{kind} {self.name}"


class Layer(NamedTuple):
    """One of the values that a setting has; the first that is there counts."""

    name: str
    value: str | None
    source: str


class Entry(NamedTuple):
    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[Layer]

    @property
    def is_default(self) -> bool:
        return self.source == source_text(ConfigSource.DEFAULT_CONFIG)


def parse_resource(text: str) -> Resource:
    """What `RESOURCE` means."""
    kind, _, name = text.partition(":")
    if text == "cluster":
        return Resource(BROKER, "")
    if kind not in _KINDS or not name or (kind == "broker" and not name.isdecimal()):
        raise usage_error(
            f"{text!r} has no settings: write broker:ID, client-metrics:NAME, cluster, group:NAME "
            "or topic:NAME"
        )
    return Resource(_KINDS[kind], name)


def source_text(source: int) -> str:
    """`dynamic topic`, `static broker`, `default`: Kafka's names in words."""
    try:
        name = ConfigSource(source).name
    except ValueError:
        return f"source {source}"
    return name.lower().removesuffix("_config").replace("_", " ")


def read(brokers: Brokers, resource: Resource) -> dict[str, Entry]:
    """Every setting of the resource."""
    doing = f"read the settings of {resource}"
    request = describe_request(resource.kind, [resource.name], None, synonyms=True)
    [result] = _ask(brokers, resource, request, DescribeConfigsResponse, doing).results
    check(result.error_code, result.error_message, doing)
    found = [
        Entry(
            c.name,
            c.value,
            source_text(c.config_source),
            c.read_only,
            c.is_sensitive,
            [Layer(s.name, s.value, source_text(s.source)) for s in c.synonyms],
        )
        for c in result.configs
    ]
    return {entry.name: entry for entry in sorted(found)}


def alter(brokers: Brokers, resource: Resource, changes: list[Change]) -> None:
    doing = f"change the settings of {resource}"
    request = alter_request(resource.kind, {resource.name: changes})
    answer = _ask(brokers, resource, request, IncrementalAlterConfigsResponse, doing)
    for response in answer.responses:
        check(response.error_code, response.error_message, doing)


def _ask(
    brokers: Brokers, resource: Resource, request: Message, answer: type[_R], doing: str
) -> _R:
    """The answer of the broker whose settings they are, of any for all others."""
    node = _broker(brokers, resource)
    try:
        if node is None:
            return brokers.ask(request, answer, doing)
        return brokers.ask_at(node.address, request, answer, doing)
    except OSError as e:
        raise _away(doing, node, e) from None


def _broker(brokers: Brokers, resource: Resource) -> Node | None:
    """Who has to be asked; None for anybody."""
    if resource.kind != BROKER or not resource.name:
        return None
    return require_node(read_nodes(brokers), int(resource.name))


def _away(doing: str, node: Node | None, error: OSError) -> CliError:
    if node is None:
        return CliError(f"cannot {doing}: {why(error)}")
    text = unreachable(f"broker {node.id}", node.address, why(error))
    return CliError(f"cannot {doing}: {text}; start the broker")
