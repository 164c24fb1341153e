"""Settings of topics and nodes, read and changed by requests of our own.

Kafka takes a node's settings only from that node itself, so the request goes there; a node that is
gone cannot take it, and then any other is asked, which is enough where the controller keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from penstock.cli.cluster.asking import Brokers, check
from penstock.cli.cluster.state import Node
from penstock.config.layers import ConfigSource
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Kafka's numbers for the kinds of resources; the broker without a name is the default of all."""
MIN_ISR = "min.insync.replicas"


class Op(IntEnum):
    """Kafka's numbers for what can be done to a setting."""

    SET = 0
    DELETE = 1


class Change(NamedTuple):
    name: str
    value: str | None
    """None takes the setting away."""


def read_topics(
    brokers: Brokers, topics: Iterable[str], keys: list[str], doing: str, *, own: bool
) -> dict[str, dict[str, str]]:
    """The values of `keys` for each topic; only those that it sets itself when `own`."""
    request = describe_request(TOPIC, topics, keys)
    if not request.resources:
        return {}
    answer = brokers.ask(request, DescribeConfigsResponse, doing)
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG if own else None
    return _values(answer, source, doing)


def read_node(brokers: Brokers, node: Node, keys: list[str], doing: str) -> dict[str, str]:
    """The values of `keys` that are dynamic settings of this very node."""
    request = describe_request(BROKER, [str(node.id)], keys)
    try:
        answer = brokers.ask_at(node.address, request, DescribeConfigsResponse, doing)
    except OSError:
        return {}
    return _values(answer, ConfigSource.DYNAMIC_BROKER_CONFIG, doing).get(str(node.id), {})


def describe_request(
    kind: int, names: Iterable[str], keys: list[str] | None, *, synonyms: bool = False
) -> DescribeConfigsRequest:
    """Asks for these settings, None for all, of each resource."""
    return DescribeConfigsRequest(
        include_synonyms=synonyms,
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for name in names
        ],
    )


def _values(
    answer: DescribeConfigsResponse, source: int | None, doing: str
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for result in answer.results:
        check(result.error_code, result.error_message, doing)
        found[result.resource_name] = {
            c.name: c.value or ""
            for c in result.configs
            if source is None or c.config_source == source
        }
    return found


def read_min_isr(brokers: Brokers, topics: Iterable[str]) -> dict[str, int]:
    """`min.insync.replicas` of each topic."""
    found = read_topics(brokers, topics, [MIN_ISR], f"read {MIN_ISR}", own=False)
    return {topic: int(values[MIN_ISR]) for topic, values in found.items() if MIN_ISR in values}


def alter_topics(brokers: Brokers, changes: Mapping[str, list[Change]], doing: str) -> None:
    if changes:
        request = alter_request(TOPIC, changes)
        _check_all(brokers.ask(request, IncrementalAlterConfigsResponse, doing), doing)


def alter_node(brokers: Brokers, node: Node, changes: list[Change], doing: str) -> None:
    """Changes the dynamic settings of one node."""
    request = alter_request(BROKER, {str(node.id): changes})
    answer = None
    if not node.fenced:
        try:
            answer = brokers.ask_at(node.address, request, IncrementalAlterConfigsResponse, doing)
        except OSError:
            answer = None
    if answer is None:
        answer = brokers.ask(request, IncrementalAlterConfigsResponse, doing)
    _check_all(answer, doing)


def alter_request(kind: int, changes: Mapping[str, list[Change]]) -> IncrementalAlterConfigsRequest:
    """Makes the changes to each resource, by its name."""
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=change.name,
                        config_operation=Op.DELETE if change.value is None else Op.SET,
                        value=change.value,
                    )
                    for change in of
                ],
            )
            for name, of in changes.items()
        ]
    )


def _check_all(answer: IncrementalAlterConfigsResponse, doing: str) -> None:
    for response in answer.responses:
        check(response.error_code, response.error_message, doing)
