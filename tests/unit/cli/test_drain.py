"""`drain` returns when the node itself knows what the controller has decided about it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.access import Access
from penstock.cli.cluster.drain import CORDON, drain
from penstock.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from penstock.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

LATE_LOOKS = 3
"""How often node 3 still says what was."""


class LateNode:
    """Brokers of which node 3 hears of a change some time after it was made."""

    def __init__(self, access: Access) -> None:
        self.changed: list[str] = []
        self.looks = 0

    def learn(self, addresses: Any) -> None: ...

    def ask(self, request: Any, answer: Any, doing: str) -> DescribeClusterResponse:
        node = DescribeClusterBroker(broker_id=3, host="h", port=9003)
        return DescribeClusterResponse(cluster_id="id", brokers=[node])

    def ask_at(self, address: Any, request: Any, answer: Any, doing: str) -> Any:
        assert address == ("h", 9003)
        if isinstance(request, DescribeLogDirsRequest):
            self.looks += bool(self.changed)
            cordoned = self.looks <= LATE_LOOKS
            return DescribeLogDirsResponse(
                results=[DescribeLogDirsResult(log_dir="/d", is_cordoned=cordoned)]
            )
        self.changed += [config.name for config in request.resources[0].configs]
        return IncrementalAlterConfigsResponse()


def test_the_end_of_a_cordon_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LateNode] = []

    def brokers(access: Access) -> LateNode:
        made.append(LateNode(access))
        return made[-1]

    monkeypatch.setattr("penstock.cli.cluster.drain.Brokers", brokers)
    drain(Access.of("h:1", 10), 3, undo=True)
    assert made[0].changed == [CORDON]
    assert made[0].looks == LATE_LOOKS + 1
