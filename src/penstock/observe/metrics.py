"""Counters, gauges and histograms that cost an attribute increment, and their registry.

Nothing of prometheus-client is touched while a request is served: a metric is an object with plain
ints, and only a scrape turns them into prometheus-client's classes, whose text format is theirs.

A metric with labels is a `Family`: the owner resolves a child once, keeps it, and increments it.

Invariants: a name is registered once; it starts with `penstock_`; a counter's ends with `_total`.
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


class Reading(NamedTuple):
    """What a scrape finds of one metric: all its samples or a slice of them."""

    name: str
    documentation: str
    kind: Kind
    samples: list[Sample]


Source: TypeAlias = Callable[[], Iterable[Reading]]
"""Called on every scrape for numbers that are cheaper to read than to keep."""

SAMPLES_PER_PART = 200
"""Rendering this many samples takes the event loop one or two milliseconds."""

_NAME = re.compile(r"penstock_[a-z][a-z0-9_]*")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")


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

    def samples(self, name: str, labels: dict[str, str]) -> list[Sample]:
        bucket = name + "_bucket"
        total = sum(self.counts[:FIRST_BITS])
        out = []
        for bound, count in zip(_BOUNDS, self.counts[FIRST_BITS:], strict=False):
            total += count
            out.append(Sample(bucket, {**labels, "le": bound}, total))
        count = self.count
        out.append(Sample(bucket, {**labels, "le": "+Inf"}, count))
        out.append(Sample(name + "_sum", labels, self.sum_ns / 1e9))
        out.append(Sample(name + "_count", labels, count))
        return out


M = TypeVar("M", Counter, Gauge, Histogram)


class Family(Generic[M]):
    """The children of one metric, one for each combination of label values."""

    __slots__ = ("_children", "_documentation", "_kind", "_make", "labels", "name")

    def __init__(
        self,
        make: Callable[[], M],
        kind: Kind,
        name: str,
        documentation: str,
        labels: tuple[str, ...],
    ) -> None:
        self._make: Callable[[], M] = make
        self._kind: Kind = kind
        self._documentation = documentation
        self._children: dict[tuple[str, ...], M] = {}
        self.name = name
        self.labels = labels

    def child(self, *values: str) -> M:
        """The metric of these label values, made on first use; keep it, do not look it up again."""
        found = self._children.get(values)
        if found is None:
            invariant(
                len(values) == len(self.labels),
                f"{self.name} has the labels {self.labels}, not {len(values)} of them",
            )
            found = self._children[values] = self._make()
        return found

    def remove(self, *values: str) -> None:
        """Forget a child, as when its topic is deleted."""
        self._children.pop(values, None)

    def readings(self) -> Iterator[Reading]:
        """The samples of all children, in slices that each render quickly."""
        samples: list[Sample] = []
        for values, child in list(self._children.items()):
            labels = dict(zip(self.labels, values, strict=True))
            samples.extend(child.samples(self.name, labels))
            if len(samples) >= SAMPLES_PER_PART:
                yield Reading(self.name, self._documentation, self._kind, samples)
                samples = []
        if samples:
            yield Reading(self.name, self._documentation, self._kind, samples)


class Registry:
    """Every metric of a node, in the order of registration."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._names: set[str] = set()

    def counter(self, name: str, documentation: str) -> Counter:
        return self.counters(name, documentation, ()).child()

    def counters(self, name: str, documentation: str, labels: tuple[str, ...]) -> Family[Counter]:
        invariant(name.endswith("_total"), f"the counter {name} must end with _total")
        return self._add(Family(Counter, "counter", name, documentation, labels))

    def gauge(
        self, name: str, documentation: str, read: Callable[[], int | float] | None = None
    ) -> Gauge:
        """A gauge that the owner sets, or that `read` returns on every scrape."""
        return self._add(Family(lambda: Gauge(read), "gauge", name, documentation, ())).child()

    def gauges(self, name: str, documentation: str, labels: tuple[str, ...]) -> Family[Gauge]:
        return self._add(Family(Gauge, "gauge", name, documentation, labels))

    def histogram(self, name: str, documentation: str) -> Histogram:
        return self.histograms(name, documentation, ()).child()

    def histograms(
        self, name: str, documentation: str, labels: tuple[str, ...]
    ) -> Family[Histogram]:
        return self._add(Family(Histogram, "histogram", name, documentation, labels))

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
                yield exposition(reading, with_head=reading.name != previous)
                previous = reading.name

    def render(self) -> bytes:
        return b"".join(self.render_parts())

    def _add(self, family: Family[M]) -> Family[M]:
        name = family.name
        invariant(_NAME.fullmatch(name) is not None, f"{name!r} is not a name for a metric of ours")
        for label in family.labels:
            invariant(_LABEL.fullmatch(label) is not None, f"{name}: {label!r} is no label name")
        invariant(name not in self._names, f"the metric {name} is registered twice")
        self._names.add(name)
        self.add_source(family.readings)
        return family


def slices(
    name: str, documentation: str, kind: Kind, samples: Iterable[Sample]
) -> Iterator[Reading]:
    """A metric of many samples as slices that each render quickly."""
    rest = iter(samples)
    while part := list(islice(rest, SAMPLES_PER_PART)):
        yield Reading(name, documentation, kind, part)
