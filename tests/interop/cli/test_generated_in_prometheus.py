"""A real Prometheus scrapes a real node, evaluates the generated rules, and answers
every query of the generated dashboard.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop.cli.conftest import COMMAND_SECONDS_MAX, PENSTOCK
from penstock import __version__
from penstock.base.build import COMPILED, kind_of_build
from penstock.cli.generate.grafana import metrics_of
from penstock.cli.generate.rules import rules
from support.helpers import consumer, make_topic, produce_all, producer, take
from support.node import NodeProcess
from support.prometheus import JOB, Prometheus, missing, prometheus, promtool
from support.quotas import set_quotas
from support.waiting import eventually

pytestmark = [
    pytest.mark.penstock_only,
    pytest.mark.timeout(300),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

MESSAGES = 20
WINDOW = "20s"
"""In place of Grafana's own: several scrapes."""
SURE = (
    "PenstockNodeDown",
    "PenstockNoActiveController",
    "PenstockSeveralActiveControllers",
    "PenstockQuorumLeaderUnknown",
    "PenstockBrokersFenced",
    "PenstockOfflinePartitions",
    "PenstockUnderMinIsrPartitions",
    "PenstockUnderReplicatedPartitions",
    "PenstockStoppedReplicas",
    "PenstockDiskRefusesWrites",
    "PenstockCorruptData",
    "PenstockProduceFails",
)
"""Alerts that nothing gives a reason to, however busy and full this machine is."""


class Watched(NamedTuple):
    node: NodeProcess
    server: Prometheus
    dashboard: Any


def generate(*arguments: str) -> None:
    subprocess.run([*PENSTOCK, "generate", *arguments], check=True, timeout=COMMAND_SECONDS_MAX)


def use(node: NodeProcess) -> None:
    """Something of everything that a dashboard shows: messages, a group, an error, a refusal, a
    client that has to wait.
    """
    make_topic(node, "watched")
    produce_all(producer(node), "watched", [{"value": b"x"}] * MESSAGES)
    reader = consumer(node, group_id="watchers", auto_offset_reset="earliest")
    reader.subscribe(["watched"])
    take(reader, MESSAGES)
    reader.commit(asynchronous=False)
    reader.list_topics("there-is-none", timeout=10)
    reader.close()
    be_refused(node)
    set_quotas(node, {"client-id": "too-much"}, producer_byte_rate=1.0)
    make_topic(node, "bounded")
    produce_all(producer(node, client_id="too-much"), "bounded", [{"value": b"x"}])


def be_refused(node: NodeProcess) -> None:
    with socket.create_connection((node.host, node.port), timeout=10) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(1) == b"", "it was not refused"


@contextmanager
def watching(folder: Path) -> Iterator[Watched]:
    """A node that was used, and a Prometheus that has what was generated."""
    generate("dashboard", "--output", str(folder / "dashboard.json"))
    generate("alerts", "--output", str(folder / "rules.yml"))
    dashboard = json.loads((folder / "dashboard.json").read_text())
    node = NodeProcess(folder / "node", {"offsets.topic.num.partitions": "1"})
    node.start()
    try:
        use(node)
        address = f"{node.http_host}:{node.http_port}"
        with prometheus(folder, address, folder / "rules.yml") as server:
            eventually(lambda: server.query("up == 1"))
            yield Watched(node, server, dashboard)
    finally:
        node.kill()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Shared by the tests that change nothing that another sees."""
    with watching(tmp_path_factory.mktemp("watched")) as all_of_it:
        yield all_of_it


def expressions(dashboard: Any) -> dict[str, str]:
    """Every expression of the dashboard by its panel and letter, with values for its variables."""
    values = {"$__rate_interval": WINDOW, "$job": JOB, "$instance": ".+"}
    found = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in values.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def test_every_panel_has_something_to_show(watched: Watched) -> None:
    asked = expressions(watched.dashboard)
    assert len(asked) > 50

    def all_have() -> bool:
        empty = [name for name, query in asked.items() if not watched.server.query(query)]
        assert empty == []
        return True

    eventually(all_have)


def test_the_variables_find_the_cluster_and_its_node(watched: Watched) -> None:
    for variable in watched.dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert found is not None
            series = watched.server.query(found[1].replace("$job", JOB))
            assert [one["metric"][found[2]] for one in series if found[2] in one["metric"]]


def test_every_metric_that_is_named_is_shown_by_a_node(watched: Watched) -> None:
    _, text = watched.node.http_get("/metrics")
    shown = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    everything = [*expressions(watched.dashboard).values(), *(r.expression for r in rules(JOB))]
    named = {name for expression in everything for name in metrics_of(expression)}
    assert named - shown == set()


def test_promtool_takes_the_metrics(watched: Watched) -> None:
    _, text = watched.node.http_get("/metrics")
    done = promtool("check", "metrics", given=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_numbers_are_those_of_the_node(watched: Watched) -> None:
    [info] = watched.server.query("penstock_build_info")
    address = f"{watched.node.http_host}:{watched.node.http_port}"
    compiled = "true" if kind_of_build() == COMPILED else "false"
    labels = {"job": JOB, "instance": address, "version": __version__, "compiled": compiled}
    assert labels.items() <= info["metric"].items()
    assert {"node", "cluster"} <= info["metric"].keys()
    [messages] = watched.server.query('penstock_topic_messages_in_total{topic="watched"}')
    assert float(messages["value"][1]) == MESSAGES
    [group] = watched.server.query('penstock_groups{protocol="classic",state="Empty"}')
    assert float(group["value"][1]) == 1


def test_prometheus_evaluates_every_rule_and_a_healthy_node_alerts_nobody(
    watched: Watched,
) -> None:
    expected = {alert.name for alert in rules(JOB)}

    def evaluated() -> bool:
        found = watched.server.rules()
        assert found.keys() == expected
        assert {rule["health"] for rule in found.values()} == {"ok"}, found
        return True

    eventually(evaluated)
    states = {name: rule["state"] for name, rule in watched.server.rules().items()}
    assert {name: states[name] for name in SURE} == dict.fromkeys(SURE, "inactive")


def test_connections_that_are_refused_are_noticed(watched: Watched) -> None:
    eventually(lambda: watched.server.query("penstock_connections_refused_total"))
    be_refused(watched.node)
    alert = "PenstockConnectionsRefused"
    eventually(lambda: watched.server.rules()[alert]["state"] == "pending")
    [one] = watched.server.rules()[alert]["alerts"]
    assert {"listener", "reason"} <= one["labels"].keys()


def test_a_node_that_dies_is_noticed(tmp_path: Path) -> None:
    with watching(tmp_path) as (node, server, _):
        assert server.rules()["PenstockNodeDown"]["state"] in ("unknown", "inactive")
        node.kill()
        eventually(lambda: server.rules()["PenstockNodeDown"]["state"] == "pending")
