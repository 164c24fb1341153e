"""Readings as Prometheus' text, by prometheus-client's own classes.

Only a scrape imports this module, since prometheus-client is large for a node that nobody scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as PrometheusMetric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample as PrometheusSample

from penstock.observe.metrics import Reading, Sample
from penstock.observe.table import METRICS

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_process = ProcessCollector(registry=None)


class _One(Collector):
    """A collector of one metric, as prometheus-client's writer asks for one."""

    def __init__(self, metric: PrometheusMetric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[PrometheusMetric]:
        return (self._metric,)


def exposition(reading: Reading, *, with_head: bool) -> bytes:
    """The lines of `reading`; its `# HELP` and `# TYPE` lines only if asked for.

    Those may stand once per metric, so a further slice of the same metric goes without.
    """
    # prometheus-client appends a counter's suffix itself.
    declared = reading.metric
    name = declared.name.removesuffix("_total")
    metric = PrometheusMetric(name, declared.documentation, declared.kind)
    metric.samples = [PrometheusSample(*sample) for sample in reading.samples]
    text = generate_latest(_One(metric))
    return text if with_head else text.split(b"\n", 2)[2]


def process_readings() -> Iterator[Reading]:
    """CPU, memory, descriptors and start time of this process under Prometheus' usual names."""
    for metric in _process.collect():
        name = metric.name + "_total" if metric.type == "counter" else metric.name
        samples = [Sample(s.name, s.labels, s.value) for s in metric.samples]
        yield Reading(METRICS[name], samples)
