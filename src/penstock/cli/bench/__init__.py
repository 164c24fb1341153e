"""`penstock bench VERB`: load on a broker, and what it costs the broker.

The raw load speaks the protocol itself with requests that are encoded once and sent again, so
that no client is in the way; `--client confluent` shows what an application sees through
librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class BenchGroup(LazyGroup):
    """The bench commands."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "produce": Verb(
            "penstock.cli.bench.produce:produce",
            "Publish at full speed to a topic made for it and deleted afterwards.",
        ),
        "consume": Verb(
            "penstock.cli.bench.consume:consume",
            "Read a topic that is filled for it, from start to end and over again, at full speed.",
        ),
        "latency": Verb(
            "penstock.cli.bench.latency:latency",
            "Publish at a fixed rate and long-poll on another connection; latency counts from"
            " when a message was due.",
        ),
        "startup": Verb(
            "penstock.cli.bench.startup:startup",
            "Start nodes on core 0 and time them; the data is made for it and removed afterwards.",
        ),
        "idle": Verb(
            "penstock.cli.bench.idle:idle",
            "Start a node and read its resident memory, then again while it holds idle"
            " connections.",
        ),
        "groups": Verb(
            "penstock.cli.bench.groups:groups",
            "Rebalance a group in both protocols and read the CPU time of idle groups.",
        ),
    }
