"""Reading from the replica in a rack, and from the leader when that replica dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.kafka.client import Address, Client, parse_addresses
from penstock.kafka.connection import Connection, take
from penstock.spark import fetch
from penstock.spark.fetch import Range, Reading, read_range
from support.cluster import Cluster
from support.spark_source import fill_numbers

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
BATCHES, ROWS = 6, 5


def test_rows_come_from_the_rack_and_else_from_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    racks = {node_id: {"broker.rack": f"rack-{node_id}"} for node_id in (1, 2, 3)}
    asked: list[Address] = []

    def noted(address: Address, client: Client) -> Connection:
        asked.append(address)
        return take(address, client)

    monkeypatch.setattr(fetch, "take", noted)
    with Cluster(3, tmp_path, {"replica.selector.class": SELECTOR}, each=racks) as cluster:
        cluster.make_topic("t", 1)
        for _ in range(BATCHES):
            fill_numbers(cluster, "t", 1, ROWS)
        leader = cluster.leader("t")
        near = next(node_id for node_id in cluster.nodes if node_id != leader)
        [address] = parse_addresses(cluster.nodes[near].bootstrap)
        how = Reading(
            cluster.nodes[leader].bootstrap, rack=f"rack-{near}", bytes_max=1, poll_timeout_s=60
        )
        rows = read_range(Range("t", 0, 0, BATCHES * ROWS), how)
        found = next(rows).column("offset").to_pylist()
        assert asked[-1] == address
        cluster.kill(near)
        found += [n for batch in rows for n in batch.column("offset").to_pylist()]
        assert found == list(range(BATCHES * ROWS))
        assert asked[-1] != address
