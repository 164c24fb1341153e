"""`penstock generate alerts`: a rule file for Prometheus, with what to do in each alert."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.generate.output import OutputFile, put
from penstock.cli.generate.rules import Alert, rules

Job = Annotated[
    str,
    typer.Option(
        metavar="REGEX",
        help="The jobs of Prometheus that scrape nodes, one for each cluster.",
    ),
]


def alerts(job: Job = "penstock", output: OutputFile = None) -> None:
    """Print rules for Prometheus that alert when something is wrong.

    Name the file under `rule_files` of Prometheus' configuration. Make it anew after an upgrade.
    """
    put(rule_file(job), output)


def rule_file(job: str) -> str:
    """The rules in Prometheus' YAML."""
    lines = [
        f"# Alerts for Penstock {__version__}, made by `penstock generate alerts`.",
        "groups:",
        "  - name: penstock",
        "    rules:",
    ]
    for alert in rules(job):
        lines += _rule(alert)
    return "\n".join(lines) + "\n"


def _rule(alert: Alert) -> list[str]:
    return [
        f"      - alert: {alert.name}",
        f"        expr: {_quoted(alert.expression)}",
        f"        for: {alert.lasting}",
        "        labels:",
        f"          severity: {alert.severity}",
        "        annotations:",
        f"          summary: {_quoted(alert.summary)}",
        f"          description: {_quoted(alert.description)}",
    ]


def _quoted(text: str) -> str:
    """A YAML scalar in single quotes, in which nothing but they themselves is special."""
    return "'" + text.replace("'", "''") + "'"
