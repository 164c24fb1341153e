"""`penstock generate VERB`: one module per verb; what both are made of stands beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class GenerateGroup(LazyGroup):
    """The files for those who watch a cluster."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "dashboard": Verb(
            "penstock.cli.generate.dashboard:dashboard",
            "Print a dashboard for Grafana, to be imported as it is.",
        ),
        "alerts": Verb(
            "penstock.cli.generate.alerts:alerts",
            "Print rules for Prometheus that alert when something is wrong.",
        ),
    }
