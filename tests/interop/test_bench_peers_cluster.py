"""A tiny round of `bench/peers/cluster.py` upon real nodes, and that its Kafka is a stock one."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.cluster import going
from bench.peers import cluster
from bench.peers.cluster_nodes import MeasuredCluster, shares

SECONDS = 0.1


@pytest.mark.peers
def test_a_round_gives_every_figure_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "IDLE_S", 0.0)
    monkeypatch.setattr(going, "SETTLE_S", 0.0)
    monkeypatch.setitem(cluster.WARM_UP_S, "penstock", 4 * SECONDS)
    found = cluster.measure("penstock", tmp_path, SECONDS)
    assert found.keys() == {part.name for part in cluster.PARTS}
    for part in cluster.PARTS:
        figures = found[part.name]
        assert {metric.key for metric in part.metrics} <= figures.keys()
        assert all(figures[metric.key] > 0 for metric in part.metrics)
    times = found[cluster.AT_RATES[1_000].name]
    assert times["p50_ms"] <= times["p99_ms"] <= times["p999_ms"]
    assert list(tmp_path.iterdir()) == []


def test_kafka_runs_with_the_options_of_its_own_script(tmp_path: Path) -> None:
    command = MeasuredCluster("kafka", tmp_path).nodes[1].command()
    assert "-XX:+UseG1GC" in command
    assert "-XX:+UseSerialGC" not in command
    assert [part for part in command if part.startswith("-Xmx")][-1] == "-Xmx1G"


@pytest.mark.parametrize(("whole", "parts"), [(8, [3, 3, 2]), (64, [22, 21, 21]), (3, [1, 1, 1])])
def test_connections_are_shared_out_evenly(whole: int, parts: list[int]) -> None:
    assert list(shares(whole, 3)) == parts
