"""Requests by API: how many, how long in each phase, which errors.

The phases are Kafka's: a request waits to be handled (queue), is worked on (local), waits for
others, as a long poll or an acknowledgement does (remote), and its answer waits for the socket
(send). Their sum is the total.

`answered` runs once per request and must stay below a microsecond: it takes nanoseconds as ints (of
`time.monotonic_ns`), whose bit length is the bucket, and touches only lists made in advance. All
buckets are counted; `penstock.metrics.request.histograms` says which of them a scrape shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.observe.metrics import Histogram, Reading, Registry
from penstock.observe.table import (
    REQUEST_ERRORS,
    REQUEST_LOCAL_SECONDS,
    REQUEST_QUEUE_SECONDS,
    REQUEST_REMOTE_SECONDS,
    REQUEST_SEND_SECONDS,
    REQUEST_TOTAL_SECONDS,
    REQUESTS,
)

PHASES: Final = (
    REQUEST_QUEUE_SECONDS,
    REQUEST_LOCAL_SECONDS,
    REQUEST_REMOTE_SECONDS,
    REQUEST_SEND_SECONDS,
    REQUEST_TOTAL_SECONDS,
)
"""In the order of `answered`, with the total last."""

HISTOGRAMS: Final[Mapping[str, tuple[int, int]]] = {
    "full": (1, 1),
    "coarse": (2, 2),
    "total": (0, 1),
    "none": (0, 0),
}
"""By the value of the setting: the histograms of the phases, and that of the total, show one bucket
of so many; 0: no bucket but the count of all.
"""


class RequestTimes:
    """When a request went through each step, in nanoseconds of `time.monotonic_ns`."""

    __slots__ = (
        "api_key",
        "local_done_ns",
        "ready_ns",
        "received_ns",
        "sent_ns",
        "started_ns",
    )

    def __init__(self, api_key: int, received_ns: int, started_ns: int) -> None:
        self.api_key = api_key
        self.received_ns = received_ns
        self.started_ns = started_ns
        self.local_done_ns = 0
        """Stays so when nothing is waited for: the answer is ready when the local work is done."""
        self.ready_ns = 0
        self.sent_ns = 0


class RequestMetrics:
    """The request metrics of one node."""

    def __init__(
        self, registry: Registry, api_names: Mapping[int, str], histograms: str = "full"
    ) -> None:
        """`api_names` has the label of every API key that may be recorded: `{0: "Produce"}`;
        `histograms` is a key of `HISTOGRAMS`.
        """
        phases, total = HISTOGRAMS[histograms]
        self._shown = (phases, phases, phases, phases, total)
        self._names = dict(api_names)
        self._phases = {key: tuple(Histogram() for _ in PHASES) for key in api_names}
        self._errors = registry.counters(REQUEST_ERRORS)
        registry.add_source(self._collect)

    def answered(self, request: RequestTimes) -> None:
        """Count one answered request with the nanoseconds it spent in each phase."""
        queue, local, remote, send, total = self._phases[request.api_key]
        received_ns, started_ns = request.received_ns, request.started_ns
        ready_ns, sent_ns = request.ready_ns, request.sent_ns
        local_done_ns = request.local_done_ns
        if local_done_ns:
            remote_ns = ready_ns - local_done_ns
            remote.counts[remote_ns.bit_length()] += 1
            remote.sum_ns += remote_ns
        else:
            local_done_ns = ready_ns
            remote.counts[0] += 1
        queue_ns, local_ns = started_ns - received_ns, local_done_ns - started_ns
        send_ns = sent_ns - ready_ns
        queue.counts[queue_ns.bit_length()] += 1
        queue.sum_ns += queue_ns
        local.counts[local_ns.bit_length()] += 1
        local.sum_ns += local_ns
        send.counts[send_ns.bit_length()] += 1
        send.sum_ns += send_ns
        total_ns = sent_ns - received_ns
        total.counts[total_ns.bit_length()] += 1
        total.sum_ns += total_ns

    def error(self, api_key: int, code: int) -> None:
        """Count an error code of an answer; `NONE` is not counted."""
        if code:
            self._errors.child(self._names[api_key], ErrorCode(code).name).value += 1

    def _collect(self) -> Iterator[Reading]:
        seen = [(self._names[key], phases) for key, phases in self._phases.items()]
        seen = [(api, phases) for api, phases in seen if phases[-1].count]
        if not seen:
            return
        counts = [REQUESTS.sample(phases[-1].count, api) for api, phases in seen]
        yield Reading(REQUESTS, counts)
        for index, (metric, every) in enumerate(zip(PHASES, self._shown, strict=True)):
            for api, phases in seen:
                samples = phases[index].samples(metric.name, {"api": api}, every)
                yield Reading(metric, samples)
