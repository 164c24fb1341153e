"""A `server.properties` as Kafka's distribution has it starts a node."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.helpers import make_topic, produce_all, producer, read
from support.node import NodeProcess
from support.process import free_port

pytestmark = pytest.mark.penstock_only

# What Kafka 4.3 sets there, a few of them in other ways of writing the same.
STOCK = """\
# A broker that is its own controller.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:{controller}

listeners=PLAINTEXT://:{port},CONTROLLER://:{controller}
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:{port},\\
    CONTROLLER://localhost:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
    SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL

num.network.threads=3
num.io.threads = 8
socket.send.buffer.bytes:102400
socket.receive.buffer.bytes 102400
socket.request.max.bytes=104857600

log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
! log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.coordinator.rebalance.protocols=classic,consumer,streams
"""


class StockNode(NodeProcess):
    """`penstock serve --config server.properties`."""

    def command(self) -> list[str]:
        file = self.root / "server.properties"
        if not file.exists():
            text = STOCK.format(port=self.port, controller=free_port(), data=self.data_dir)
            file.write_text(text)
        http = f"{self.http_host}:{self.http_port}"
        argv = [sys.executable, "-m", "penstock.cli", "serve", "--config", str(file)]
        return [*argv, "--http", http, "--set", "penstock.log.format=json"]


def test_kafkas_own_file_starts_a_node(tmp_path: Path) -> None:
    node = StockNode(tmp_path)
    with node:
        make_topic(node, "orders")
        produce_all(producer(node), "orders", [{"value": b"one"}])
        node.restart()
        assert [message.value() for message in read(node, "orders", 1)] == [b"one"]
    lines = [json.loads(line) for line in node.log_path.read_text().splitlines()]
    [told, _again_after_the_restart] = [line for line in lines if "no effect" in str(line)]
    assert "num.io.threads" in str(told)
    assert "group.coordinator.rebalance.protocols=streams" in str(told)
