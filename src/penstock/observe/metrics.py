"""Counters, gauges and histograms that cost an attribute increment, and their registry.

Nothing of prometheus-client is touched while a request is served: a metric is an object with plain
ints, and only a scrape turns them into prometheus-client's classes, whose text format is theirs.

What a metric is called, counts and is labelled with is a `Metric`, a row of `observe/table.py`. One
with labels is a `Family`: the owner resolves a child once, keeps it, and increments it.

Invariants: a metric is registered once; its name starts with `penstock_` (`process_` is for what
prometheus-client reads of the process); a counter's ends with `_total`.
Limits: a scrape is rendered in parts of about `SAMPLES_PER_PART` samples, so that the event loop
can serve requests between two parts.
Everything here belongs to the event loop's thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from penstock.base.errors import invariant

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Sample(NamedTuple):
    """One number of a scrape; a histogram has several, whose names differ from the metric's."""

    name: str
    labels: dict[str, str]
    value: int | float


SAMPLES_PER_PART = 200
"""Rendering this many samples takes the event loop one or two milliseconds."""

_NAME = re.compile(r"(penstock|process)_[a-z][a-z0-9_]*")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")


class Metric:
    """What a scrape says of a metric before its numbers, and makes of them."""

    __slots__ = ("documentation", "kind", "labels", "name")

    def __init__(
        self, name: str, kind: Kind, documentation: str, labels: tuple[str, ...] = ()
    ) -> None:
        invariant(_NAME.fullmatch(name) is not None, f"{name!r} is not a name for a metric of ours")
        invariant(
            (kind == "counter") == name.endswith("_total"),
            f"{name}: counters, and nothing else, end with _total",
        )
        for label in labels:
            invariant(_LABEL.fullmatch(label) is not None, f"{name}: {label!r} is no label name")
        self.name = name
        self.kind: Kind = kind
        self.documentation = documentation
        self.labels = labels

    def sample(self, value: float, *values: str) -> Sample:
        """A number, under the values of the labels in their order."""
        return Sample(self.name, dict(zip(self.labels, values, strict=True)), value)

    def one(self, value: float) -> Reading:
        """The reading of a metric without labels."""
        return Reading(self, [self.sample(value)])

    def slices(self, samples: Iterable[Sample]) -> Iterator[Reading]:
        """Many samples as readings that each render quickly."""
        rest = iter(samples)
        while part := list(islice(rest, SAMPLES_PER_PART)):
            yield Reading(self, part)


class Reading(NamedTuple):
    """What a scrape finds of one metric: all its samples or a slice of them."""

    metric: Metric
    samples: list[Sample]


Source: TypeAlias = Callable[[], Iterable[Reading]]
"""Called on every scrape for numbers that are cheaper to read than to keep."""


class Counter:
    """A number that only grows: `counter.value += n`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: int | float = 0

    def samples(self, name: str, labels: dict[str, str]) -> list[Sample]:
        return [Sample(name, labels, self.value)]


class Gauge:
    """A number that goes up and down: `gauge.value = n`, or read by a callback on every scrape."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], int | float] | None = None) -> None:
        self.value: int | float = 0
        self._read = read

    def samples(self, name: str, labels: dict[str, str]) -> list[Sample]:
        return [Sample(name, labels, self.value if self._read is None else self._read())]


FIRST_BITS: Final = 14
LAST_BITS: Final = 34
_BOUNDS: Final = [repr((1 << bits) / 1e9) for bits in range(FIRST_BITS, LAST_BITS + 1)]


class Histogram:
    """Durations in buckets that double, from 2^14 ns (16 µs) to 2^34 ns (17 s).

    The bucket of a duration is the bit length of its nanoseconds: no search, no comparison. A
    duration of exactly 2^n ns counts one bucket higher than Prometheus' "less or equal" asks for.
    """

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * 65
        self.sum_ns = 0

    def observe_ns(self, ns: int) -> None:
        self.counts[ns.bit_length()] += 1
        self.sum_ns += ns

    def observe(self, seconds: float) -> None:
        self.observe_ns(int(seconds * 1e9))

    @property
    def count(self) -> int:
        return sum(self.counts)

    def samples(self, name: str, labels: dict[str, str], every: int = 1) -> list[Sample]:
        """All buckets, or of `every` so many the first; with 0 only the one that has no bound."""
        bucket = name + "_bucket"
        total = sum(self.counts[:FIRST_BITS])
        out = []
        if every:
            for index, bound in enumerate(_BOUNDS):
                total += self.counts[FIRST_BITS + index]
                if index % every == 0:
                    out.append(Sample(bucket, {**labels, "le": bound}, total))
        count = self.count
        out.append(Sample(bucket, {**labels, "le": "+Inf"}, count))
        out.append(Sample(name + "_sum", labels, self.sum_ns / 1e9))
        out.append(Sample(name + "_count", labels, count))
        return out


M = TypeVar("M", Counter, Gauge, Histogram)


class Family(Generic[M]):
    """The children of one metric, one for each combination of label values."""

    __slots__ = ("_children", "_make", "metric")

    def __init__(self, make: Callable[[], M], metric: Metric) -> None:
        self._make: Callable[[], M] = make
        self._children: dict[tuple[str, ...], M] = {}
        self.metric = metric

    def child(self, *values: str) -> M:
        """The metric of these label values, made on first use; keep it, do not look it up again."""
        found = self._children.get(values)
        if found is None:
            metric = self.metric
            invariant(
                len(values) == len(metric.labels),
                f"{metric.name} has the labels {metric.labels}, not {len(values)} of them",
            )
            found = self._children[values] = self._make()
        return found

    def remove(self, *values: str) -> None:
        """Forget a child, as when its topic is deleted."""
        self._children.pop(values, None)

    def readings(self) -> Iterator[Reading]:
        """The samples of all children, in slices that each render quickly."""
        metric = self.metric
        samples: list[Sample] = []
        for values, child in list(self._children.items()):
            labels = dict(zip(metric.labels, values, strict=True))
            samples.extend(child.samples(metric.name, labels))
            if len(samples) >= SAMPLES_PER_PART:
                yield Reading(metric, samples)
                samples = []
        if samples:
            yield Reading(metric, samples)


class Registry:
    """Every metric of a node, in the order of registration."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._names: set[str] = set()

    def counter(self, metric: Metric) -> Counter:
        return self.counters(metric).child()

    def counters(self, metric: Metric) -> Family[Counter]:
        return self._add(Family(Counter, metric), "counter")

    def gauge(self, metric: Metric, read: Callable[[], int | float] | None = None) -> Gauge:
        """A gauge that the owner sets, or that `read` returns on every scrape."""
        return self._add(Family(lambda: Gauge(read), metric), "gauge").child()

    def gauges(self, metric: Metric) -> Family[Gauge]:
        return self._add(Family(Gauge, metric), "gauge")

    def histogram(self, metric: Metric) -> Histogram:
        return self._add(Family(Histogram, metric), "histogram").child()

    def add_source(self, source: Source) -> None:
        """Have `source` asked on every scrape.

        It may yield one metric in several consecutive slices, to keep each short.
        """
        self._sources.append(source)

    def render_parts(self) -> Iterator[bytes]:
        """Prometheus' text format, piece by piece; let others work between two pieces."""
        # Imported by the first scrape: prometheus-client brings 7 MB of modules with it.
        from penstock.observe.exposition import exposition

        previous = ""
        for source in list(self._sources):
            for reading in source():
                name = reading.metric.name
                yield exposition(reading, with_head=name != previous)
                previous = name

    def render(self) -> bytes:
        return b"".join(self.render_parts())

    def _add(self, family: Family[M], kind: Kind) -> Family[M]:
        metric = family.metric
        invariant(metric.kind == kind, f"the {metric.kind} {metric.name} is used as a {kind}")
        invariant(metric.name not in self._names, f"the metric {metric.name} is registered twice")
        self._names.add(metric.name)
        self.add_source(family.readings)
        return family
