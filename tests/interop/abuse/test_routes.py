"""The HTTP address, which knows no users: what it tells to anybody who reaches it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from interop.abuse.rig import allow, login
from penstock.observe.table import METRICS
from support.calls import find_topic, produce
from support.helpers import make_topic
from support.secured import PASSWORD, PLAIN_PASSWORD, PLAIN_USER, USER
from support.secured_node import SecuredNode

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

ROUTES = {"/healthz", "/metrics", "/readyz"}
NAMING = {
    "topic", "group", "user", "client_id", "key_id",
    "attributes", "client_instance_id", "metric", "software_name", "software_version",
}  # fmt: skip
"""Labels of metrics that name what ACLs are about; the page says so."""
UNNAMED = {
    "api", "cluster", "compiled", "error", "listener", "node", "outcome", "partition", "protocol",
    "quota", "reason", "state", "version",
}  # fmt: skip


def ask(node: SecuredNode, path: str, method: str = "GET") -> tuple[int, str]:
    url = f"http://{node.http_host}:{node.http_port}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_every_route_is_known_and_tells_no_more_than_it_should(locked: SecuredNode) -> None:
    """A new route fails here until somebody has decided what it may tell."""
    topic = make_topic(locked, "hidden-topic")
    allow(locked, (4, 2, topic), user=PLAIN_USER)
    with login(locked) as user:
        produce(user, find_topic(user, topic), None)
    status, said = ask(locked, "/nowhere")
    assert status == 404
    assert {word.strip(',". }\n') for word in said.split() if word.startswith("/")} == ROUTES
    for path in ("/healthz", "/readyz"):
        status, said = ask(locked, path)
        assert status == 200
        assert json.loads(said).keys() == {"status", "reason"}
        assert topic not in said
    status, said = ask(locked, "/metrics")
    assert status == 200
    for secret in (PASSWORD, PLAIN_PASSWORD, PLAIN_USER, USER, "ALLOW", str(locked.root)):
        assert secret not in said.replace(str(locked.data_dir), "")


def test_labels_of_metrics_name_nothing_else() -> None:
    labels = {label for metric in METRICS.values() for label in metric.labels}
    assert labels - UNNAMED == NAMING


@pytest.mark.parametrize("path", ["/metrics/../healthz", "//metrics", "/METRICS", "/%2e%2e/etc"])
def test_an_odd_path_is_no_route(locked: SecuredNode, path: str) -> None:
    status, said = ask(locked, path)
    assert status == 404
    assert "etc" not in said


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(locked: SecuredNode, method: str) -> None:
    assert ask(locked, "/metrics", method)[0] in (400, 405, 413)
