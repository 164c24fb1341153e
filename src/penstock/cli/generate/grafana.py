"""The table of panels as the JSON that Grafana imports.

The data source, the job and the nodes are variables of the dashboard, so that it belongs to no
installation. What a panel's metrics mean is told by their rows in the table of metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from penstock.cli.generate.panels import ROWS, Look, Panel, Row
from penstock.observe.table import BUILD_INFO, METRICS

SCHEMA_VERSION: Final = 42
"""Of dashboards in Grafana 12; older ones read it as well."""
UID: Final = "penstock"
COLUMNS: Final = 24
SIZES: Final = {Look.NUMBER: (4, 4), Look.LINES: (8, 8), Look.TABLE: (24, 6)}
"""Width and height by look, in units of Grafana's grid."""
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

_NAME = re.compile(r"\b(?:penstock|process)_\w+")


def grafana_dashboard() -> dict[str, Any]:
    return {
        "title": "Penstock",
        "uid": UID,
        "description": "Made by `penstock generate dashboard`; make it anew after an upgrade.",
        "tags": ["penstock", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": _variables()},
        "panels": list(_laid_out()),
    }


def metrics_of(expression: str) -> list[str]:
    """The names of the metrics in it, which are rows of the table."""
    found = dict.fromkeys(_NAME.findall(expression))
    return [
        name if name in METRICS else re.sub(r"_(bucket|sum|count)$", "", name) for name in found
    ]


def _variables() -> list[dict[str, Any]]:
    name = BUILD_INFO.name
    several = {"multi": True, "includeAll": True, "allValue": ".+", "current": _ALL}
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {**_values_of("job", name), "label": "Cluster (job)"},
        {**_values_of("instance", f'{name}{{job=~"$job"}}'), "label": "Node", **several},
    ]


_ALL: Final = {"text": ["All"], "value": ["$__all"]}
_ON_TIME_RANGE: Final = 2


def _values_of(label: str, series: str) -> dict[str, Any]:
    """A variable with the values of a label."""
    query = f"label_values({series}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": _ON_TIME_RANGE,
        "sort": 1,
    }


def _laid_out() -> Iterator[dict[str, Any]]:
    """Rows and their panels, from left to right and from top to bottom."""
    y = 0
    number = 1
    for row in ROWS:
        yield _row(row, number, y)
        number += 1
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            w, h = SIZES[panel.look]
            if x + w > COLUMNS or (height and h != height):
                x, y, height = 0, y + height, 0
            yield _panel(panel, number, {"x": x, "y": y, "w": w, "h": h})
            number += 1
            x, height = x + w, h
        y += height


def _row(row: Row, number: int, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "gridPos": place,
        "collapsed": False,
        "panels": [],
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.look.value,
        "title": panel.title,
        "description": _meaning(panel),
        "gridPos": place,
        "datasource": DATASOURCE,
        "targets": [
            _target(chr(ord("A") + index), query.expression, query.legend, panel.look)
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        **_OPTIONS[panel.look],
    }


def _meaning(panel: Panel) -> str:
    """What the table of metrics says of each metric that is shown."""
    names = [name for query in panel.queries for name in metrics_of(query.expression)]
    told = [f"`{name}`: {METRICS[name].documentation}" for name in dict.fromkeys(names)]
    return "\n\n".join(told) or "Nodes that Prometheus can scrape."


def _target(ref: str, expression: str, legend: str, look: Look) -> dict[str, Any]:
    target = {
        "refId": ref,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend or "__auto",
    }
    if look is Look.LINES:
        return target | {"range": True}
    form = "table" if look is Look.TABLE else "time_series"
    return target | {"instant": True, "range": False, "format": form}


def _defaults(panel: Panel) -> dict[str, Any]:
    if panel.look is not Look.NUMBER:
        lowest = {"min": 0} if panel.look is Look.LINES else {}
        return {"unit": panel.unit.value, **lowest}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.bad_below}]
    if panel.bad_from is not None:
        steps.append({"color": "red", "value": panel.bad_from})
    return {
        "unit": panel.unit.value,
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }


_HIDDEN: Final = ("Time", "Value", "__name__")
_OPTIONS: Final[dict[Look, dict[str, Any]]] = {
    Look.LINES: {
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    },
    Look.NUMBER: {
        "options": {
            "colorMode": "background",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    },
    Look.TABLE: {
        "options": {"showHeader": True},
        "transformations": [
            {"id": "organize", "options": {"excludeByName": dict.fromkeys(_HIDDEN, True)}}
        ],
    },
}
