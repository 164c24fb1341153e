"""`controller.listener.names`: the quorum has a listener of its own, which clients are not told of
and which serves them nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.wire.messages.metadata import MetadataRequest
from support.cluster import Cluster
from support.helpers import QUIET, take
from support.process import free_port
from support.raw import Closed, RawClient
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.timeout(240)]

NODES = (1, 2, 3)
COUNT = 50


def with_controllers(root: Path) -> tuple[Cluster, dict[int, int]]:
    cluster = Cluster(3, root)
    ports = {node_id: free_port() for node_id in NODES}
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
    for node_id, node in cluster.nodes.items():
        node.settings |= {
            "listeners": f"CONTROLLER://127.0.0.1:{ports[node_id]},PLAINTEXT://{node.bootstrap}",
            "advertised.listeners": f"PLAINTEXT://{node.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": voters,
        }
    return cluster, ports


def test_the_quorum_has_a_listener_of_its_own(tmp_path: Path) -> None:
    cluster, ports = with_controllers(tmp_path)
    with cluster:
        cluster.make_topic("t", 3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
        for number in range(COUNT):
            producer.produce("t", b"%d" % number)
        assert producer.flush(60) == 0
        cluster.kill(cluster.quorum_leader())
        eventually(lambda: cluster.quorum_leader() in cluster.running)
        cluster.start()
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                **QUIET,
            }
        )
        consumer.subscribe(["t"])
        assert len(take(consumer, COUNT)) == COUNT
        consumer.close()
        told = {broker.port for broker in cluster.ask(MetadataRequest(topics=[]), 12).brokers}
        assert told.isdisjoint(ports.values())
        _look_at(cluster, ports)


def _look_at(cluster: Cluster, ports: dict[int, int]) -> None:
    """What the listener of the quorum serves: as in Kafka, what Kafka's controllers serve."""
    with RawClient("127.0.0.1", ports[1]) as client:
        keys = {api.api_key for api in client.call(ApiVersionsRequest(), 2).api_keys}
        assert {ApiKey.VOTE, ApiKey.FETCH, ApiKey.DESCRIBE_CLUSTER} <= keys
        assert keys.isdisjoint({ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP})
        assert client.call(DescribeClusterRequest(), 0).error_code == 0
        with pytest.raises(Closed):
            client.call(MetadataRequest(topics=[]), 12)
    topic = RequestTopicData(
        topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)]
    )
    quorum = cluster.ask(DescribeQuorumRequest(topics=[topic]), 2)
    for node in quorum.nodes:
        assert {e.name: e.port for e in node.listeners} == {
            "CONTROLLER": ports[node.node_id],
            "PLAINTEXT": cluster.nodes[node.node_id].port,
        }
