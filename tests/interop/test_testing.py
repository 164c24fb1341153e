"""`penstock.testing`: nodes that start, fail, die and come back, and never outlive the tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import unittest.mock
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.kafka.errors import ClusterError
from penstock.testing import NodeFailed, cluster, node, processes
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only
STARTED = Path(__file__).resolve().parents[1] / "support" / "started_nodes.py"
READ_S_MAX = 30.0


def exists(pid: int) -> bool:
    """Whether there is such a process, that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def publish(bootstrap: str, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(READ_S_MAX) == 0


def values(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [consumer.poll(READ_S_MAX) for _ in range(count)]
    consumer.close()
    return [message.value().decode() for message in found]


def test_a_node_has_an_address_settings_and_a_folder() -> None:
    with node({"num.partitions": 2}, auto_create_topics_enable=False) as broker:
        folder, pid = broker.folder, broker.pid
        assert broker.running
        assert pid is not None
        assert folder.is_dir()
        assert urlopen(f"{broker.http}/readyz").status == 200
        names = {broker.create_topic(), broker.create_topic(), broker.create_topic("orders")}
        assert len(names) == 3
        with pytest.raises(ClusterError, match="TOPIC_ALREADY_EXISTS"):
            broker.create_topic("orders")
    assert not broker.running
    assert not exists(pid)
    assert not folder.parent.exists()


def test_a_node_comes_back_where_it_was_with_what_it_had() -> None:
    with node() as broker:
        at, topic = broker.bootstrap_servers, broker.create_topic()
        publish(at, topic, "one")
        first = broker.pid
        broker.kill()
        assert not broker.running
        broker.start()
        assert broker.start().bootstrap_servers == at
        assert broker.pid != first
        publish(at, topic, "two")
        broker.restart()
        broker.pause()
        broker.resume()
        assert values(at, topic, 2) == ["one", "two"]


def test_a_folder_that_is_given_is_kept(tmp_path: Path) -> None:
    with node(folder=tmp_path / "kept") as broker:
        topic = broker.create_topic()
        publish(broker.bootstrap_servers, topic, "one")
    assert "stopped" in broker.log_path.read_text()
    with node(folder=tmp_path / "kept") as again:
        assert values(again.bootstrap_servers, topic, 1) == ["one"]


def test_a_start_that_fails_shows_the_log() -> None:
    with pytest.raises(NodeFailed) as failed, node(num_partitions="many"):
        raise AssertionError("it cannot have started")
    assert "ended with exit code 2 while it started" in str(failed.value)
    assert "num.partitions cannot be 'many'" in str(failed.value)
    with (
        pytest.raises(NodeFailed, match=r"num.partitions cannot be 'many'"),
        cluster(2, {"num.partitions": "many"}),
    ):
        raise AssertionError("it cannot have started")


def test_what_was_not_started_says_so() -> None:
    with pytest.raises(NodeFailed, match="was not started"):
        _ = node().bootstrap_servers
    with pytest.raises(ValueError, match="1 to 9 nodes, not 0"):
        cluster(0)


def test_a_port_that_somebody_takes_is_left_to_him() -> None:
    with socket.socket() as taken:
        taken.bind((processes.HOST, 0))
        taken.listen()
        free = processes.free_ports(1)
        ports = [taken.getsockname()[1], free]
        with (
            unittest.mock.patch.object(processes, "free_ports", side_effect=ports),
            node() as broker,
        ):
            assert broker.port == free


def test_a_cluster_loses_a_node_and_goes_on() -> None:
    with cluster(3) as brokers:
        topic = brokers.create_topic(partitions=3)
        folder, pids = brokers.node(1).folder.parent, [n.pid for n in brokers.nodes.values()]
        brokers.node(1).kill()
        publish(brokers.bootstrap_servers, topic, "one")
        brokers.start()
        assert all(n.running for n in brokers.nodes.values())
        assert values(brokers.node(1).bootstrap_servers, topic, 1) == ["one"]
        pids += [brokers.node(1).pid]
    assert not folder.exists()
    assert not any(exists(pid) for pid in pids if pid is not None)


@pytest.mark.parametrize("kind", ["running", "paused", "cluster", "forked"])
def test_no_node_outlives_a_test_that_is_killed(kind: str) -> None:
    test = subprocess.Popen(
        [sys.executable, str(STARTED), kind], stdout=subprocess.PIPE, text=True, process_group=0
    )
    try:
        assert test.stdout is not None
        *pids, folder = test.stdout.readline().split()
        assert pids
        assert all(exists(int(pid)) for pid in pids)
        test.kill()
        test.wait()
        eventually(lambda: not any(exists(int(pid)) for pid in pids))
        eventually(lambda: not Path(folder).exists())
    finally:
        os.killpg(test.pid, signal.SIGKILL) if kind == "forked" else test.kill()
        test.communicate()


def test_importing_it_imports_nothing_of_a_node_and_no_pytest() -> None:
    script = (
        "import sys, penstock.testing\n"
        "assert 'pytest' not in sys.modules\n"
        "ours = {n for n in sys.modules if n.startswith('penstock')}\n"
        "assert ours <= {'penstock', 'penstock.testing', 'penstock.testing.clusters',"
        " 'penstock.testing.processes'}, ours\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
