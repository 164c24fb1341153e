"""The throttle of a reassignment is taken away also where the brokers have not heard of it yet."""

from __future__ import annotations

from typing import Any

from penstock.cli.cluster.configs import BROKER, TOPIC, Op
from penstock.cli.cluster.moves import Move
from penstock.cli.cluster.state import ClusterState, Node, Partition
from penstock.cli.cluster.throttle import NODE_SETTINGS, TOPIC_SETTINGS, clear_throttle
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from penstock.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

Deleted = set[tuple[int, str, str]]


class LateBrokers:
    """Brokers that take every change and know of no dynamic setting."""

    def __init__(self) -> None:
        self.deleted: Deleted = set()

    def ask(self, request: Any, answer: Any, doing: str) -> Any:
        if isinstance(request, DescribeConfigsRequest):
            return DescribeConfigsResponse()
        for resource in request.resources:
            for config in resource.configs:
                assert config.config_operation == Op.DELETE
                self.deleted.add((resource.resource_type, resource.resource_name, config.name))
        return IncrementalAlterConfigsResponse()

    def ask_at(self, address: Any, request: Any, answer: Any, doing: str) -> Any:
        return self.ask(request, answer, doing)


def cleared(*moves: Move) -> tuple[bool, Deleted]:
    state = ClusterState("id", {i: Node(i, "h", 9000 + i, None, False) for i in (1, 2, 3)})
    for topic in ("t", "u"):
        partition = Partition(topic, 0, 1, (1,), (1,))
        state.partitions[partition.key] = partition
    brokers: Any = LateBrokers()
    return clear_throttle(brokers, state, moves), brokers.deleted


def test_a_throttle_that_nobody_knows_of_yet() -> None:
    there_was, deleted = cleared(Move("t", 0, (1,), (2,)))
    assert there_was
    assert deleted == {
        *((TOPIC, "t", name) for name in TOPIC_SETTINGS),
        *((BROKER, str(node), name) for node in (1, 2) for name in NODE_SETTINGS),
    }


def test_no_throttle_at_all() -> None:
    assert cleared() == (False, set())
