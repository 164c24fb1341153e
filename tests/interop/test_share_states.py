"""States of share-partitions in a node as a process: they outlive it, Apache's tools read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.ids import uuid_text
from penstock.share.types import ShareKey
from penstock.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
)
from penstock.wire.messages.initialize_share_group_state import PartitionData as Initialize
from penstock.wire.messages.read_share_group_state import PartitionData as Read
from penstock.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from penstock.wire.messages.write_share_group_state import PartitionData as Write
from penstock.wire.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
)
from support import reference
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_states import SETTINGS, ShareStates
from support.tools import Tools

FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
SMALL = {"share.coordinator.snapshot.update.records.per.snapshot": "2"}
WRITES = 5


@pytest.fixture
def node(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path: Path, brokers: list[BrokerProcess]
) -> BrokerProcess:
    """A broker with one partition for states and a snapshot after two updates."""
    broker = broker_maker(tmp_path / "node")
    broker.settings |= SETTINGS | SMALL
    brokers.append(broker)
    return broker.start()


def write_some(broker: BrokerProcess) -> ShareKey:
    """A share-partition of which the first records are acknowledged one by one."""
    with RawClient(broker.host, broker.port) as client:
        states = ShareStates(client)
        key = ShareKey("group:with:colons", states.make_topics("t", 1)["t"], 0)
        begun = Initialize(state_epoch=3, start_offset=0)
        assert states.ask(InitializeShareGroupStateRequest, key, begun).error_code == 0
        assert states.ask(ReadShareGroupStateRequest, key, Read(leader_epoch=7)).error_code == 0
        for offset in range(WRITES):
            batch = StateBatch(
                first_offset=offset, last_offset=offset, delivery_state=2, delivery_count=1
            )
            named = Write(
                state_epoch=3,
                leader_epoch=7,
                start_offset=-1,
                delivery_complete_count=offset + 1,
                state_batches=[batch],
            )
            assert states.ask(WriteShareGroupStateRequest, key, named).error_code == 0
    return key


def reject_one(broker: BrokerProcess, key: ShareKey) -> None:
    """A record is to become a dead letter, with a cause, of which Kafka knows nothing."""
    with RawClient(broker.host, broker.port) as client:
        batch = StateBatch(
            first_offset=WRITES, last_offset=WRITES, delivery_state=3, delivery_count=1, cause=1
        )
        named = Write(
            state_epoch=3,
            leader_epoch=7,
            start_offset=-1,
            delivery_complete_count=WRITES,
            state_batches=[batch],
        )
        assert ShareStates(client).ask(WriteShareGroupStateRequest, key, named).error_code == 0


def test_states_outlive_a_node_that_is_killed(node: BrokerProcess) -> None:
    key = write_some(node)
    node.kill()
    node.start()
    with RawClient(node.host, node.port) as client:
        states = ShareStates(client)
        found = states.ask(ReadShareGroupStateRequest, key, Read(leader_epoch=7))
        assert (found.error_code, found.state_epoch, found.start_offset) == (0, 3, 0)
        [batch] = found.state_batches
        assert (batch.first_offset, batch.last_offset) == (0, WRITES - 1)
        assert (batch.delivery_state, batch.delivery_count) == (2, 1)
        fenced = states.ask(ReadShareGroupStateRequest, key, Read(leader_epoch=6))
        assert fenced.error_code == 74  # FENCED_LEADER_EPOCH


@pytest.mark.java
def test_apaches_consumer_shows_the_records(node: BrokerProcess) -> None:
    if (reason := reference.missing()) is not None:
        pytest.skip(reason)
    key = write_some(node)
    reject_one(node, key)
    records = 2 + WRITES + 1
    shown = Tools.output_alone(
        "console-consumer",
        "--bootstrap-server",
        node.bootstrap,
        "--topic",
        "__share_group_state",
        "--formatter",
        FORMATTER,
        "--from-beginning",
        "--max-messages",
        str(records),
        "--timeout-ms",
        "60000",
    )
    # It writes them one after the other, without line ends.
    lines = [json.loads(record) for record in re.findall(r'\{"key".*?\}(?=\{"key"|\s|$)', shown)]
    assert len(lines) == records
    # A snapshot, then two updates each time.
    assert [line["key"]["type"] for line in lines] == [0, 1, 1, 0, 1, 1, 0, 1]
    for line in lines:
        assert line["key"]["data"] == {
            "groupId": key.group_id,
            "topicId": uuid_text(key.topic_id),
            "partition": 0,
        }
    first, *_, last, rejected = (line["value"]["data"] for line in lines)
    assert (first["stateEpoch"], first["leaderEpoch"], first["startOffset"]) == (3, 0, 0)
    assert (last["snapshotEpoch"], last["stateEpoch"], last["leaderEpoch"]) == (2, 3, 7)
    assert last["deliveryCompleteCount"] == WRITES
    assert last["stateBatches"] == [
        {"firstOffset": 0, "lastOffset": WRITES - 1, "deliveryState": 2, "deliveryCount": 1}
    ]
    assert rejected["stateBatches"] == [
        {"firstOffset": WRITES, "lastOffset": WRITES, "deliveryState": 3, "deliveryCount": 1}
    ]
