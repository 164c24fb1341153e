"""A fail-over of `bench/scale` is measured from the signal on."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("confluent_kafka", reason="bench.scale needs confluent-kafka")

from bench.scale import failover
from tests.support.cluster import Cluster

EXIT_S = 0.2


class FakeCaller:
    """A connection to nobody."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> FakeCaller:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeCluster:
    """A killed node takes its time to be gone."""

    def __init__(self) -> None:
        self.nodes = {i: SimpleNamespace(host="", port=0) for i in (1, 2)}

    def kill(self, _node_id: int) -> None:
        time.sleep(EXIT_S)


def test_the_time_that_a_killed_node_takes_to_be_gone_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led = iter([[("t", 0)], []])
    monkeypatch.setattr(failover, "Caller", FakeCaller)
    monkeypatch.setattr(failover, "_led_by", lambda _caller, _node_id: next(led))
    monkeypatch.setattr(failover, "_taken", lambda _caller, _request: True)
    found = failover._kill(cast(Cluster, FakeCluster()), 1)
    assert found["partitions_moved"] == 1
    assert found["failover_first_s"] >= EXIT_S
