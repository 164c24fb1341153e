"""`penstock bench VERB`: load on a broker, and what it costs the broker.

The raw load speaks the protocol itself with requests that are encoded once and sent again, so
that no client is in the way; `--client confluent` shows what an application sees through
librdkafka.
"""

from __future__ import annotations

import typer


def build() -> typer.Typer:
    """The group of bench commands."""
    from penstock.cli.bench import consume, groups, idle, latency, produce, startup

    group = typer.Typer(
        help="Measure a broker: throughput, latency, start, memory, groups.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("produce")(produce.produce)
    group.command("consume")(consume.consume)
    group.command("latency")(latency.latency)
    group.command("startup")(startup.startup)
    group.command("idle")(idle.idle)
    group.command("groups")(groups.groups)
    return group
