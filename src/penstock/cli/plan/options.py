"""The options of `penstock plan` that have defaults, in two groups: the load and the nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import typer

from penstock.cli.errors import usage_error
from penstock.cli.options import OptionGroup
from penstock.cli.output import bytes_text
from penstock.cli.plan import figures
from penstock.cli.plan.arithmetic import Load, NodeSize
from penstock.cli.values import (
    parse_bandwidth,
    parse_duration_ms,
    parse_percent,
    parse_rate,
    parse_size,
)


def some(option: str, value: float) -> float:
    """The value, which must be more than nothing."""
    if value <= 0:
        raise usage_error(f"{option} is 0, which needs nothing: give what it is at least")
    return value


def _whole(option: str, least: int, text: str) -> Any:
    return Annotated[int, typer.Option(option, min=least, help=text)]


def _factor(option: str, text: str) -> Any:
    return Annotated[float, typer.Option(option, min=1.0, metavar="FACTOR", help=text)]


def _text(option: str, metavar: str, text: str) -> Any:
    return Annotated[str, typer.Option(option, metavar=metavar, help=text)]


@dataclass(frozen=True)
class LoadOptions(OptionGroup):
    """What is known of the load beside size and retention."""

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        "replication": (_whole("--replication", 1, "Copies of each partition."), 3),
        "consumers": (_whole("--consumers", 0, "Groups that read everything."), 1),
        "members": (_whole("--members", 1, "Consumers in the largest group."), 1),
        "producers": (_whole("--producers", 1, "Producers."), 1),
        "peak": (_factor("--peak", "The busiest moment against the average."), 2.0),
        "compression": (_factor("--compression", "How many times smaller messages get."), 1.0),
        "batch": (_text("--batch", "BYTES", "Of a producer's request (batch.size)."), "16K"),
        "partition_rate": (
            _text("--partition-rate", "BYTES", "What one partition takes in a second."),
            "10M",
        ),
        "consumer_rate": (
            Annotated[
                str | None,
                typer.Option(
                    "--consumer-rate", metavar="N/s", help="Messages that one consumer handles."
                ),
            ],
            None,
        ),
    }
    given: Mapping[str, Any]

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        return cls(options)

    def load(self, size: str, retention: str) -> Load:
        """The load, of which nothing is impossible."""
        given = self.given
        handled = given["consumer_rate"]
        return Load(
            size_bytes=_sendable("--size", parse_size(size)),
            retention_s=some("--retention", parse_duration_ms(retention)) / 1000,
            replication=given["replication"],
            groups=given["consumers"],
            members=given["members"],
            producers=given["producers"],
            peak=_finite("--peak", given["peak"]),
            compression=_finite("--compression", given["compression"]),
            batch_bytes=_sendable("--batch", parse_size(given["batch"])),
            partition_bytes_per_s=some("--partition-rate", parse_size(given["partition_rate"])),
            consumer_messages_per_s=None
            if handled is None
            else some("--consumer-rate", parse_rate(handled)),
        )


def _finite(option: str, value: float) -> float:
    if not math.isfinite(value):
        raise usage_error(
            f"{option} is {value}, which is no number to multiply with: write 2 or 1.5"
        )
    return value


def _sendable(option: str, value: float) -> float:
    largest = figures.REQUEST_BYTES_MAX
    if value > largest:
        raise usage_error(
            f"{option} is {bytes_text(value)}, and a request has {bytes_text(largest)} at most"
            " (socket.request.max.bytes): keep large things elsewhere, and publish where they are"
        )
    return some(option, value)


class NodeOptions(OptionGroup, NodeSize):
    """What a node has."""

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        "disk": (_text("--disk", "BYTES", "Disk of a node."), "1T"),
        "network": (_text("--network", "BITS/s", "Network of a node, each way."), "1Gbit/s"),
        "headroom": (_text("--headroom", "SHARE", "How much of a disk is kept free."), "30%"),
        "spare": (_whole("--spare", 0, "Nodes that may be lost at the peak."), 1),
    }

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        disk = some("--disk", parse_size(options["disk"]))
        headroom = parse_percent(options["headroom"])
        if headroom >= 1:
            raise usage_error("--headroom is 100%, which leaves no disk for data: give less")
        if disk * (1 - headroom) < figures.SEGMENT_BYTES:
            raise usage_error(
                f"--disk is {bytes_text(disk)}, of which {headroom:.0%} is kept free: a node needs"
                f" room for a segment of {bytes_text(figures.SEGMENT_BYTES)}, so give more"
            )
        network = some("--network", parse_bandwidth(options["network"]))
        return cls(disk, network, headroom, options["spare"])
