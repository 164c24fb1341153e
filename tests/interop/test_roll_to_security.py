"""docs/security.md, "From plain to locked, without a stop", as it stands there: a plain cluster
under load becomes a locked one. Then a roll that is half done when nodes die, and that goes back.

Nothing is lost, nothing is there twice, the order is kept, and no pause is longer than that of a
restart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from support.secured_cluster import (
    NODES,
    TOPIC,
    Follower,
    Load,
    SecuredCluster,
    assert_in_order,
    check_all,
    is_open,
    make_topic,
)
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.timeout(600)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
PAUSE_SECONDS_MAX = 20.0
"""A restart is hardly felt; librdkafka's own pauses after a connection that failed grow to ten
seconds, and the machine has others to serve.
"""
COMMAND_SECONDS_MAX = 60
MACHINES = {1: "alpha", 2: "beta", 3: "gamma"}
ANN = "of ann"


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who does on three machines what the page says."""

    def __init__(self, root: Path) -> None:
        self.secured = SecuredCluster(root)
        self.root = root
        above, _, self.section = PAGE.partition("\n## From plain to locked")
        [admin] = [text for kind, text in blocks(above) if "sasl.username=admin" in text]
        self._names = {
            f"{name}.example:{port}": at(node_id)
            for node_id, name in MACHINES.items()
            for port, at in ((9092, self.secured.plain_at), (9093, self.secured.secure_at))
        }
        self._names["localhost:9093"] = self.secured.secure_at(1)
        for name in MACHINES.values():
            self._names[f"{name}.pem"] = str(self.secured.files.broker)
        self._names["ca.pem"] = str(self.secured.files.authority)
        (root / "admin.properties").write_text(self.here(admin))

    def here(self, text: str) -> str:
        for there, found in self._names.items():
            text = text.replace(there, found)
        return text

    def set(self, node_id: int, text: str) -> None:
        """What the page has alpha set, as this node sets it."""
        settings = self.secured.cluster.nodes[node_id].settings
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name in ("node.id", "log.dirs"):
                continue  # the cluster has its own
            if name != "controller.quorum.voters":
                value = value.replace("alpha", MACHINES[node_id])
            settings[name] = self.here(value)
            if name == "listeners":
                settings["advertised.listeners"] = self.here(value)

    def bash(self, text: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", text.replace("orders-readers", "g").replace("orders", TOPIC)],
            cwd=self.root,
            env={**os.environ, "PATH": path, "ANN_PASSWORD": ANN},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, (text, done.stdout, done.stderr)

    def ann(self) -> dict[str, Any]:
        by_scram = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.password": ANN}
        return self.secured.secure_client() | by_scram


def test_the_page_from_its_first_step_to_the_last(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    secured = reader.secured
    before, listener, between, user, rules, acls, last = (
        text for _, text in blocks(reader.section)
    )
    plain, admin = (
        secured.plain_client(),
        secured.secure_client()
        | {
            "sasl.username": "admin",
            "sasl.password": "change-me-2",
        },
    )
    clients: list[Load | Follower] = []

    def roll(text: str, view: dict[str, Any], load: Load) -> None:
        for node_id in NODES:
            reader.set(node_id, text)
            secured.cluster.restart(node_id)
            eventually(lambda: secured.in_sync(view))
            load.goes_on()

    try:
        for node_id in NODES:
            reader.set(node_id, before)
        secured.launch()
        make_topic(plain)
        seen: dict[int, list[int]] = defaultdict(list)
        load, follower = Load(plain), Follower(plain, seen)
        clients += [load, follower]
        load.goes_on()
        roll(listener, plain, load)
        roll(between, plain, load)
        reader.bash(user)
        load.end()
        eventually(lambda: follower.has_all(load.next))
        follower.end()
        moved, follower = Load(reader.ann(), load.next), Follower(reader.ann(), seen)
        clients += [moved, follower]
        moved.goes_on()
        roll(rules, admin, moved)
        reader.bash(acls)
        roll(last, admin, moved)
        moved.end()
        eventually(lambda: follower.has_all(moved.next))
        follower.end()
        assert_in_order(seen, moved.next)
        check_all(admin, moved.next)
        assert max(load.longest_pause_s(), moved.longest_pause_s()) < PAUSE_SECONDS_MAX
        assert not any(is_open(secured.plain_at(node_id)) for node_id in NODES)
        plain_there = {**plain, "bootstrap.servers": secured.secure_at(1)}
        with pytest.raises(KafkaException):
            AdminClient(plain_there).list_topics(timeout=3)
        assert not any(secured.has_said(n, "does not offer the listener") for n in NODES)
    finally:
        secured.cluster.close()


def test_a_roll_that_is_half_done_when_nodes_die_and_that_goes_back(tmp_path: Path) -> None:
    secured = SecuredCluster(tmp_path)
    safe = {"plain": True, "secure": True, "between": "SASL_SSL"}
    unsafe = {"plain": True, "secure": True, "between": "PLAINTEXT"}

    def configure(node_id: int, stage: dict[str, Any]) -> None:
        secured.configure(node_id, **stage)

    def whole() -> None:
        eventually(lambda: secured.in_sync(plain))
        load.goes_on()

    try:
        for node_id in NODES:
            configure(node_id, {**unsafe, "secure": False})
        secured.launch()
        plain = secured.plain_client()
        make_topic(plain)
        load = Load(plain)
        load.goes_on()
        for node_id in NODES:
            configure(node_id, unsafe)
            secured.cluster.restart(node_id)
            whole()
        configure(1, safe)
        secured.cluster.restart(1)
        whole()
        # The roll stops half done: the controller dies, and comes back as it was.
        dead = secured.cluster.quorum_leader()
        secured.cluster.kill(dead)
        load.goes_on()
        secured.cluster.start_node(dead)
        whole()
        # A node dies and comes back with the next step.
        configure(2, safe)
        secured.cluster.kill(2)
        load.goes_on()
        secured.cluster.start_node(2)
        whole()
        # Back, with a node that is killed while it is being restarted.
        for node_id in (2, 1):
            configure(node_id, unsafe)
            secured.cluster.kill(node_id)
            load.goes_on()
            secured.cluster.start_node(node_id)
            whole()
        for node_id in NODES:
            configure(node_id, {**unsafe, "secure": False})
            secured.cluster.restart(node_id)
            whole()
        load.end()
        check_all(plain, load.next)
        assert not any(is_open(secured.secure_at(node_id)) for node_id in NODES)
    finally:
        secured.cluster.close()


def test_a_cluster_that_was_stopped_as_a_whole_comes_back_with_other_listeners(
    tmp_path: Path,
) -> None:
    """What each knows of the others is out of date; their settings say where they are now."""
    secured = SecuredCluster(tmp_path)
    try:
        for node_id in NODES:
            secured.configure(node_id, plain=True, secure=False, between="PLAINTEXT")
        secured.launch()
        make_topic(secured.plain_client())
        load = Load(secured.plain_client())
        load.goes_on()
        load.end()
        secured.cluster.stop_all()
        for node_id in NODES:
            secured.configure(node_id, plain=False, secure=True, between="SASL_SSL")
        secured.launch()
        eventually(lambda: secured.in_sync(secured.secure_client()))
        check_all(secured.secure_client(), load.next)
    finally:
        secured.cluster.close()
