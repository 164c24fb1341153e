"""What a measurement found, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.cli.bench.broker import CpuClock
from penstock.cli.errors import CliError
from penstock.cli.output import print_json, print_pairs

MB = 1_000_000

_UNITS = {
    "messages_per_s": "messages/s",
    "mb_per_s": "MB/s",
    "requests_per_s": "requests/s",
    "broker_cpu_s": "broker CPU seconds",
    "broker_cores": "broker cores busy",
    "messages_per_core_s": "messages per core-second of the broker",
    "requests_per_core_s": "requests per core-second of the broker",
    "mb_per_core_s": "MB per core-second of the broker",
}


class Load(NamedTuple):
    """What went through in an interval."""

    seconds: float
    messages: int
    payload_bytes: int
    requests: int
    broker_cpu_s: float | None


def throughput(load: Load) -> dict[str, Any]:
    """Rates by the wall clock and, where the broker's CPU time is known, per core-second of it."""
    if not load.messages:
        raise CliError(
            f"no message was acknowledged or read in {load.seconds:.1f} s, so nothing was measured:"
            " look at the broker with `penstock doctor`"
        )
    found: dict[str, Any] = {
        "seconds": round(load.seconds, 3),
        "messages": load.messages,
        "messages_per_s": round(load.messages / load.seconds),
        "mb_per_s": round(load.payload_bytes / MB / load.seconds, 1),
    }
    if load.requests:
        found["requests_per_s"] = round(load.requests / load.seconds)
    if load.broker_cpu_s is None:
        return found
    found["broker_cpu_s"] = round(load.broker_cpu_s, 3)
    found["broker_cores"] = round(load.broker_cpu_s / load.seconds, 3)
    if load.broker_cpu_s > 0:
        found["messages_per_core_s"] = round(load.messages / load.broker_cpu_s)
        found["mb_per_core_s"] = round(load.payload_bytes / MB / load.broker_cpu_s, 1)
        if load.requests:
            found["requests_per_core_s"] = round(load.requests / load.broker_cpu_s)
    return found


def percentiles(latencies_ns: Sequence[int]) -> dict[str, float]:
    """The latencies' distribution in milliseconds."""
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {
        f"{name}_ms": round(ordered[round(last * share)] / 1e6, 3) for name, share in shares.items()
    }


class CpuMeter:
    """The broker's CPU time since the last `restart`; None when nothing was named to read it
    from.
    """

    def __init__(self, clock: CpuClock | None) -> None:
        self._clock = clock
        self._from = 0.0

    def restart(self) -> None:
        self._from = self._clock() if self._clock else 0.0

    def read(self) -> float | None:
        return self._clock() - self._from if self._clock else None


def print_result(result: Mapping[str, Any], *, as_json: bool) -> None:
    """One measurement: its settings and what was found."""
    if as_json:
        print_json(result)
        return
    rows = []
    for key, value in result.items():
        shown = (
            f"{value:,}"
            if isinstance(value, int | float) and not isinstance(value, bool)
            else value
        )
        rows.append((_UNITS.get(key, key.replace("_", " ")), str(shown)))
    print_pairs(rows)
