"""`penstock dev` as people run it: start, a node that dies and comes back, stop, start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.node.pid_file import read_pid
from support.process import free_port, free_ports
from support.waiting import eventually

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK, Ended, Run
from .dev_cluster import running

pytestmark = pytest.mark.penstock_only


def test_one_node_from_start_to_start(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, "--nodes", "1", "--base-port", str(port)) as dev:
        assert dev.wait_ready() == [f"127.0.0.1:{port}"]
        pid = dev.pid(1)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "node 1 was ended by SIGKILL" in dev.err())
        told = f"penstock serve --config {dev.folder(1)}/penstock.toml"
        eventually(lambda: told in dev.err())
        assert dev.process.poll() is None, "dev goes on"
        assert read_pid(str(dev.folder(1))) == pid
        assert dev.pid(1) is None
        command = [*PENSTOCK, "serve", "--config", str(dev.folder(1) / "penstock.toml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as back:
            assert back.stdout is not None
            assert back.stdout.readline().startswith(b"ready: kafka=127.0.0.1:%d " % port)
            assert dev.pid(1) == back.pid
            eventually(lambda: f"node 1 is back as process {back.pid}" in dev.err())
            assert dev.stop() == 0
            assert back.wait(COMMAND_SECONDS_MAX) == 0, "dev stops also what others started"
    assert not (tmp_path / "node-1" / "penstock.pid").exists()
    assert (tmp_path / "node-1" / ".kafka_cleanshutdown").exists()
    with running(tmp_path) as dev:
        assert dev.wait_ready() == [f"127.0.0.1:{port}"]
        assert dev.stop() == 0


def test_three_nodes_live_through_the_loss_of_one_and_grow(tmp_path: Path, run_at: Run) -> None:
    port = free_ports(4)
    with running(tmp_path, "--nodes", "3", "--base-port", str(port)) as dev:
        addresses = dev.wait_ready()
        assert addresses == [f"127.0.0.1:{port + i}" for i in range(3)]
        bootstrap = ",".join(addresses)
        assert run_at(bootstrap, "cluster", "status").code == 0
        assert run_at(bootstrap, "topic", "create", "t", "-p", "3").code == 0
        assert publish(run_at, bootstrap, "before").code == 0
        pid = dev.pid(2)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "node 2 was ended by SIGKILL" in dev.err())
        assert publish(run_at, bootstrap, "with one node less").code == 0
        eventually(lambda: run_at(bootstrap, "cluster", "status").code == 3)
        command = [*PENSTOCK, "serve", "--config", str(dev.folder(2) / "penstock.toml")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as back:
            eventually(lambda: run_at(bootstrap, "cluster", "status").code == 0)
            assert dev.stop() == 0
            assert back.wait(COMMAND_SECONDS_MAX) == 0
    for i in (1, 2, 3):
        assert (tmp_path / f"node-{i}" / ".kafka_cleanshutdown").exists(), "stopped cleanly"
    with running(tmp_path, "--nodes", "4") as dev:
        bootstrap = ",".join(dev.wait_ready())
        nodes = run_at(bootstrap, "cluster", "nodes", "--format", "json").json()
        assert [node["node"] for node in nodes] == [1, 2, 3, 4]
        assert nodes[3]["quorum"] == "observer"
        kept = run_at(bootstrap, "topic", "consume", "t").out.splitlines()
        assert sorted(kept) == ["before", "with one node less"]
        assert dev.stop() == 0


def publish(run_at: Run, bootstrap: str, line: str) -> Ended:
    return run_at(bootstrap, "topic", "produce", "t", "--acks", "all", stdin=line + "\n")


def test_one_node_grows_to_a_quorum_of_three(tmp_path: Path, run_at: Run) -> None:
    port = free_ports(3)
    with running(tmp_path, "--nodes", "1", "--base-port", str(port)) as dev:
        dev.wait_ready()
        assert dev.stop() == 0
    with running(tmp_path, "--nodes", "3") as dev:
        bootstrap = ",".join(dev.wait_ready())

        def voters() -> list[int]:
            facts = json.loads(run_at(bootstrap, "cluster", "status", "--format", "json").out)
            return sorted(voter["id"] for voter in facts["quorum"]["voters"])

        eventually(lambda: voters() == [1, 2, 3])
        assert dev.stop() == 0


def test_nodes_end_with_a_dev_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "--nodes", "1", "--base-port", str(free_port())) as dev:
        dev.wait_ready()
        dev.process.kill()
        eventually(lambda: dev.pid(1) is None)
        eventually(lambda: (dev.folder(1) / ".kafka_cleanshutdown").exists())


def test_a_node_that_cannot_start_is_told_with_its_reason(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "a", "--nodes", "1", "--base-port", str(port)) as first:
        first.wait_ready()
        with running(tmp_path / "b", "--nodes", "1", "--base-port", str(port)) as second:
            assert second.process.wait(COMMAND_SECONDS_MAX) == 1
            assert "error: node 1 ended with exit code 1 while it started" in second.err()
            assert f"cannot listen on 127.0.0.1:{port}" in second.err()
        again = subprocess.run(
            [*PENSTOCK, "dev", "--data-dir", str(tmp_path / "a")],
            capture_output=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert again.returncode == 1
        assert b"error: node 1 runs already (process %d)" % first.pid(1) in again.stderr
        assert first.pid(1) is not None, "whoever runs already is left alone"


def test_bad_settings_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "num.partitons=3") as dev:
        assert dev.process.wait(COMMAND_SECONDS_MAX) == 2
        assert "num.partitons" in dev.err()
    assert list(tmp_path.glob("node-*")) == []
