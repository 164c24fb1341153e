"""`penstock generate dashboard`: the JSON of a Grafana dashboard."""

from __future__ import annotations

import json

from penstock.cli.generate.grafana import grafana_dashboard
from penstock.cli.generate.output import OutputFile, put


def dashboard(output: OutputFile = None) -> None:
    """Print a dashboard for Grafana, to be imported as it is.

    Data source, cluster and nodes are chosen in the dashboard. Make it anew after an upgrade.
    """
    put(json.dumps(grafana_dashboard(), indent=2) + "\n", output)
