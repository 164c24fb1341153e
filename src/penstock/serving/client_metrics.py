"""The numbers that clients have pushed, as `/metrics` shows them.

Clients choose the names of metrics, of attributes and of themselves. So none of them becomes the
name of a metric or of a label here: they are values of labels, of bounded length and without
control characters, and there are never more series than `penstock.telemetry.max.series`, and
SERIES_PER_CLIENT_MAX of one client. What is beyond is dropped and counted.

The numbers of a client are shown until it has been silent for three intervals (a minute at least),
also when its connection has ended, so that a scrape finds the last ones. They are looked through at
a scrape, and for room, without timers. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from penstock.base.ids import Uuid, uuid_text
from penstock.observe.metrics import Metric, Reading, Sample
from penstock.observe.table import CLIENT_GAUGE, CLIENT_INFO, CLIENT_SUM
from penstock.serving.client_instances import Client, Instance
from penstock.wire.otlp import Number

SERIES_PER_CLIENT_MAX: Final = 500
LABEL_CHARACTERS_MAX: Final = 100
"""Of what a client calls itself and its software."""
EXPIRE_EVERY_MS: Final = 1_000
"""To look for room among ten thousand clients takes a millisecond."""

_Numbers: TypeAlias = dict[tuple[str, str], float]
"""By metric and attributes."""


class _Shown:
    """The numbers of one client."""

    __slots__ = ("expires_ms", "gauges", "labels", "software", "sums")

    def __init__(self, instance_id: Uuid, client: Client) -> None:
        self.labels = (_label(client.client_id or ""), uuid_text(instance_id))
        self.software = (_label(client.software_name), _label(client.software_version))
        self.gauges: _Numbers = {}
        self.sums: _Numbers = {}
        self.expires_ms = 0

    def __len__(self) -> int:
        return len(self.gauges) + len(self.sums)


class ClientMetrics:
    def __init__(self, now_ms: Callable[[], int], series_max: int) -> None:
        self._now_ms = now_ms
        self._series_max = series_max
        self._shown: dict[Uuid, _Shown] = {}
        self._expire_next_ms = 0
        self.series = 0
        self.dropped = 0
        """Numbers for which there was no room."""

    def take(self, instance: Instance, numbers: Iterable[Number]) -> None:
        """What a client has pushed."""
        now_ms = self._now_ms()
        shown = self._shown.get(instance.id)
        if shown is None:
            shown = _Shown(instance.id, instance.client)
        shown.expires_ms = now_ms + instance.silent_ms_max
        for number in numbers:
            self._keep(shown, number, now_ms)
        if shown:
            self._shown[instance.id] = shown

    def _keep(self, shown: _Shown, number: Number, now_ms: int) -> None:
        kept = shown.sums if number.counts else shown.gauges
        key = number.metric, printable(number.attributes)
        before = kept.get(key)
        if before is None:
            if len(shown) >= SERIES_PER_CLIENT_MAX or not self._has_room(now_ms):
                self.dropped += 1
                return
            self.series += 1
            before = 0.0
        if not number.delta:
            kept[key] = number.value
        elif not number.counts or number.value > 0:
            kept[key] = before + number.value
        else:
            kept[key] = before  # what only grows does not fall, whatever a client says

    def _has_room(self, now_ms: int) -> bool:
        if self.series >= self._series_max and now_ms >= self._expire_next_ms:
            self._expire_next_ms = now_ms + EXPIRE_EVERY_MS
            self._expire(now_ms)
        return self.series < self._series_max

    def _expire(self, now_ms: int) -> None:
        ended = [key for key, one in self._shown.items() if one.expires_ms <= now_ms]
        for key in ended:
            self.series -= len(self._shown.pop(key))

    def readings(self) -> Iterator[Reading]:
        """All of them, in slices that each render quickly."""
        self._expire(self._now_ms())
        clients = list(self._shown.values())
        software = (CLIENT_INFO.sample(1, *one.labels, *one.software) for one in clients)
        gauges = _samples(CLIENT_GAUGE, ((one.labels, one.gauges) for one in clients))
        sums = _samples(CLIENT_SUM, ((one.labels, one.sums) for one in clients))
        for metric, samples in (
            (CLIENT_INFO, software),
            (CLIENT_GAUGE, gauges),
            (CLIENT_SUM, sums),
        ):
            yield Reading(metric, [])  # it is there, also without a client
            yield from metric.slices(samples)


def _samples(
    metric: Metric, clients: Iterable[tuple[tuple[str, str], _Numbers]]
) -> Iterator[Sample]:
    for labels, numbers in clients:
        # A push may come between two slices.
        for (name, attributes), value in list(numbers.items()):
            yield metric.sample(value, *labels, name, attributes)


def printable(text: str) -> str:
    """`text` without control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def _label(text: str) -> str:
    return printable(text[:LABEL_CHARACTERS_MAX])
