"""The dashboard and the alerts are made of the table of metrics, and are whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base.errors import InvariantBroken
from penstock.cli.app import RootGroup, run
from penstock.cli.generate.expressions import TARGET_LABELS, Nodes
from penstock.cli.generate.grafana import COLUMNS, metrics_of
from penstock.cli.generate.panels import ROWS, Look
from penstock.cli.generate.rules import Severity, rules
from penstock.cli.lazy import LazyGroup
from penstock.observe import table
from penstock.observe.table import METRICS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "observability.md").read_text()
NODES = Nodes('job="j"')

_COMMAND = re.compile(r"`penstock ([a-z -]+?)(?: --[a-z-]+)?`")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
_BY = re.compile(r" by \(([\w, ]+)\)")


@pytest.fixture
def dashboard(capsys: pytest.CaptureFixture[str]) -> Any:
    assert run(["generate", "dashboard"]) == 0
    return json.loads(capsys.readouterr().out)


def names_in(*expressions: str) -> set[str]:
    return {name for expression in expressions for name in metrics_of(expression)}


# -- names cannot drift ----------------------------------------------------------------------------


def test_a_metric_is_named_in_the_table_and_nowhere_else_in_the_code() -> None:
    ours = {name for name in METRICS if name.startswith("penstock_")}
    house = Path(table.__file__).parents[1]
    found = {
        str(path.relative_to(house)): named
        for path in house.rglob("*.py")
        if (named := ours.intersection(re.findall(r"\bpenstock_\w+", path.read_text())))
    }
    assert list(found) == ["observe/table.py"]


def test_no_metric_has_a_label_that_prometheus_adds() -> None:
    assert [m.name for m in METRICS.values() if {*TARGET_LABELS, "le"} & {*m.labels}] == []


def test_expressions_use_metrics_of_the_table() -> None:
    of_panels = names_in(*(q.expression for row in ROWS for p in row.panels for q in p.queries))
    of_rules = names_in(*(rule.expression for rule in rules("j")))
    assert of_panels | of_rules <= METRICS.keys()
    assert len(of_panels) > len(METRICS) / 2
    assert len(of_rules) > 15


def test_what_a_metric_does_not_have_cannot_be_asked_of_it() -> None:
    for ask in (
        lambda: NODES.all(table.BYTES_IN, topic="t"),
        lambda: NODES.sum(table.GROUPS, "group"),
        lambda: NODES.rate(table.GROUPS, "1m"),
        lambda: NODES.increase(table.PARTITIONS, "1m"),
        lambda: NODES.quantile(0.5, table.REQUESTS, "1m"),
        lambda: NODES.mean(table.REQUESTS, "1m"),
        lambda: NODES.all(table.REQUEST_TOTAL_SECONDS),
    ):
        with pytest.raises(InvariantBroken):
            ask()


def test_expressions_are_promql() -> None:
    assert NODES.all(table.REQUESTS, api='a"b') == 'penstock_requests_total{api="a\\"b",job="j"}'
    assert (
        NODES.quantile(0.99, table.REQUEST_TOTAL_SECONDS, "5m", "instance", api="Fetch")
        == "histogram_quantile(0.99, sum by (instance, le)"
        ' (rate(penstock_request_total_seconds_bucket{api="Fetch",job="j"}[5m])))'
    )
    assert (
        NODES.mean(table.REQUEST_SEND_SECONDS, "5m")
        == 'sum (rate(penstock_request_send_seconds_sum{job="j"}[5m]))'
        ' / sum (rate(penstock_request_send_seconds_count{job="j"}[5m]))'
    )


# -- the dashboard ---------------------------------------------------------------------------------


def test_the_dashboard_belongs_to_no_installation(dashboard: Any) -> None:
    variables = {v["name"]: v for v in dashboard["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    sources = {json.dumps(panel.get("datasource")) for panel in dashboard["panels"]}
    assert sources == {"null", json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    assert "id" not in dashboard
    assert "__inputs" not in dashboard


def test_the_dashboard_has_its_rows_and_all_panels(dashboard: Any) -> None:
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert titles == [
        title for row in ROWS for title in (row.title, *(p.title for p in row.panels))
    ]
    assert len(set(titles)) == len(titles)
    words = ("health", "traffic", "latency", "groups", "queues", "storage", "resources")
    for row, word in zip(ROWS, words, strict=True):
        assert word in row.title.lower()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert sorted(set(ids)) == ids


def test_no_panel_lies_upon_another(dashboard: Any) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies upon {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_a_panel_tells_what_its_metrics_mean(dashboard: Any) -> None:
    for panel in dashboard["panels"]:
        for name in names_in(*(target["expr"] for target in panel.get("targets", ()))):
            assert METRICS[name].documentation in panel["description"]


def test_a_legend_names_labels_that_its_series_have() -> None:
    for panel in [p for row in ROWS for p in row.panels if p.look is Look.LINES]:
        legends = [query.legend for query in panel.queries]
        assert len(set(legends)) == len(legends), panel.title
        for query in panel.queries:
            by = _BY.search(query.expression)
            [*metrics] = names_in(query.expression)
            whole = {*METRICS[metrics[0]].labels, *TARGET_LABELS}
            has = set(by[1].split(", ")) if by and "group_right" not in query.expression else whole
            has = set() if not by and "sum" in query.expression else has
            assert set(_LEGEND.findall(query.legend)) <= has, query


# -- the alerts ------------------------------------------------------------------------------------


def test_the_rule_file_says_what_the_table_says(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    assert run(["generate", "alerts", "--job", 'it\'s|"other"', "--output", str(file)]) == 0
    [group] = yaml.safe_load(file.read_text())["groups"]
    expected = rules('it\'s|"other"')
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in expected]
    for rule, alert in zip(group["rules"], expected, strict=True):
        assert rule["expr"] == alert.expression
        assert rule["for"] == alert.lasting
        assert rule["labels"] == {"severity": alert.severity.value}
        told = {"summary": alert.summary, "description": alert.description}
        assert rule["annotations"] == told
    assert [path.name for path in tmp_path.iterdir()] == ["rules.yml"]


def test_every_alert_says_what_to_do_and_is_named_once() -> None:
    alerts = rules("j")
    assert len({alert.name for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert re.fullmatch(r"Penstock[A-Za-z]+", alert.name)
        assert alert.severity in Severity
        assert len(alert.description) > 60
        assert alert.description.endswith(".")
        assert not alert.summary.endswith(".")


def test_the_commands_that_alerts_name_exist() -> None:
    named = {c for alert in rules("j") for c in _COMMAND.findall(alert.description)}
    assert len(named) > 5
    for command in named:
        group: Any = RootGroup(name="penstock")
        for word in command.split():
            assert isinstance(group, LazyGroup), command
            group = group.commands[word].load()


def test_the_page_has_a_row_for_every_alert() -> None:
    rows = dict(re.findall(r"^\| `(Penstock\w+)` \| (\w+) \|", PAGE, re.MULTILINE))
    assert rows == {alert.name: alert.severity.value for alert in rules("j")}


def test_a_file_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "alerts", "-o", str(tmp_path / "none" / "x.yml")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
