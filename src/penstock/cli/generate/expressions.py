"""PromQL about the metrics of the table: what is asked of a metric must be in its row.

Expressions are made by functions that take a `Metric`, not its name. A label that the metric does
not have, or a rate of what is no counter, is an error when the module of the expression is
imported, which every test of `penstock generate` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from penstock.base.errors import invariant
from penstock.observe.metrics import Metric

TARGET_LABELS: Final = ("job", "instance")
"""What Prometheus adds to the labels of a node's metrics: its job is the cluster, its instance the
node's HTTP address.
"""


class Nodes:
    """The metrics of the nodes that `matchers` selects, as in `job=~"penstock"`."""

    def __init__(self, matchers: str) -> None:
        self._matchers = matchers

    @property
    def up(self) -> str:
        """Prometheus' own: 1 for each node that it could scrape, else 0."""
        return f"up{{{self._matchers}}}"

    def all(self, metric: Metric, **labels: str) -> str:
        """Every series of a metric, or those with these labels."""
        invariant(metric.kind != "histogram", f"{metric.name} has no series of its own")
        return self._selector(metric, metric.name, labels)

    def sum(self, metric: Metric, *by: str) -> str:
        return f"sum{_by(metric, by)} ({self.all(metric)})"

    def max(self, metric: Metric, *by: str) -> str:
        return f"max{_by(metric, by)} ({self.all(metric)})"

    def rate(self, metric: Metric, window: str, *by: str, **labels: str) -> str:
        """How often a second a counter counts, summed."""
        invariant(metric.kind == "counter", f"{metric.name} is no counter")
        series = self._selector(metric, metric.name, labels)
        return f"sum{_by(metric, by)} (rate({series}[{window}]))"

    def increase(self, metric: Metric, window: str, *by: str) -> str:
        """How much a counter has counted, summed."""
        invariant(metric.kind == "counter", f"{metric.name} is no counter")
        return f"sum{_by(metric, by)} (increase({self.all(metric)}[{window}]))"

    def quantile(self, part: float, metric: Metric, window: str, *by: str, **labels: str) -> str:
        """A percentile of a histogram."""
        buckets = self._part_of_histogram(metric, "bucket", labels)
        return (
            f"histogram_quantile({part}, sum{_by(metric, (*by, 'le'))} (rate({buckets}[{window}])))"
        )

    def mean(self, metric: Metric, window: str, *by: str, **labels: str) -> str:
        """The average of a histogram, which needs none of its buckets."""
        sums, counts = (self._part_of_histogram(metric, p, labels) for p in ("sum", "count"))
        over = _by(metric, by)
        return f"sum{over} (rate({sums}[{window}])) / sum{over} (rate({counts}[{window}]))"

    def _part_of_histogram(self, metric: Metric, part: str, labels: dict[str, str]) -> str:
        invariant(metric.kind == "histogram", f"{metric.name} is no histogram")
        return self._selector(metric, f"{metric.name}_{part}", labels)

    def _selector(self, metric: Metric, name: str, labels: dict[str, str]) -> str:
        _check(metric, labels, metric.labels)
        matchers = [f"{label}={json.dumps(value)}" for label, value in labels.items()]
        return f"{name}{{{','.join([*matchers, self._matchers])}}}"


def _by(metric: Metric, labels: Iterable[str]) -> str:
    own = ("le",) if metric.kind == "histogram" else ()
    _check(metric, labels, (*metric.labels, *TARGET_LABELS, *own))
    return f" by ({', '.join(labels)})" if labels else ""


def _check(metric: Metric, labels: Iterable[str], known: tuple[str, ...]) -> None:
    for label in labels:
        invariant(label in known, f"{metric.name} has no label {label}")
