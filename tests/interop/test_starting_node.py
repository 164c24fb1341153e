"""A node that starts hangs up on a Produce; it does not answer it with an error.

Why it matters: an idempotent librdkafka producer takes a broken connection for a request that may
or may not have been stored, and sends it again under the same epoch and numbers, so that the broker
knows it for a copy. An error in the answer can make it give up the message, go on with a new epoch
and send the following ones, which may be stored, as new ones: duplicates that no broker can see.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.messages.api_versions import ApiVersionsRequest
from support.batches import batch
from support.calls import FETCH_BY_ID, RawTopic, fetch_request, find_topic, produce_request
from support.cluster import Cluster
from support.raw import Closed
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only

TOPIC = "early"
RECORDS = batch([b"x"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(3, tmp_path)
    yield made
    made.close()


def answers(cluster: Cluster, node_id: int, request: Any, version: int) -> bool:
    """Whether the node listens and serves such requests already."""
    try:
        with cluster.raw(node_id) as client:
            client.call(request, version)
    except (OSError, Closed):
        return False
    return True


def assert_hangs_up_on_produce(cluster: Cluster, node_id: int, topic: RawTopic) -> None:
    for version in (3, 12, 13):
        with cluster.raw(node_id) as client:
            client.send(produce_request(topic, RECORDS, version), version)
            with pytest.raises(Closed):
                client.receive_frame()


def test_while_it_looks_for_its_cluster(cluster: Cluster) -> None:
    """Its first start: it does not even know the cluster's id without the other two."""
    cluster.nodes[1].launch()
    eventually(lambda: answers(cluster, 1, ApiVersionsRequest(), 0))
    assert_hangs_up_on_produce(cluster, 1, RawTopic(TOPIC, bytes(15) + b"\1"))
    assert not cluster.nodes[1].is_ready()


def test_while_it_waits_for_a_quorum(cluster: Cluster) -> None:
    """A leader that was killed and is back before the others: it knows the topic, and has it."""
    cluster.start()
    cluster.make_topic(TOPIC)
    leader = cluster.leader(TOPIC)
    with cluster.raw(leader) as client:
        topic = find_topic(client, TOPIC)
        answer = client.call(produce_request(topic, RECORDS, 13), 13)
        assert answer.responses[0].partition_responses[0].error_code == 0
    cluster.kill(*cluster.nodes)
    cluster.nodes[leader].launch()
    # Not served while a node looks for its cluster: so this one is further.
    request = fetch_request([(topic, {0: 0})], FETCH_BY_ID)
    eventually(lambda: answers(cluster, leader, request, FETCH_BY_ID))
    assert_hangs_up_on_produce(cluster, leader, topic)
    assert not cluster.nodes[leader].is_ready()
