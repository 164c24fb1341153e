"""`penstock bench consume`: how much a broker gives out, and what that costs it."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.bench.broker import touch_memory
from penstock.cli.bench.confluent import consume as consume_by_client
from penstock.cli.bench.raw_consume import FetchLoad
from penstock.cli.bench.raw_produce import ProduceLoad
from penstock.cli.bench.report import Load, print_result, throughput
from penstock.cli.bench.requests import message_batch
from penstock.cli.bench.target import (
    WARM_UP_S,
    BrokerPid,
    Client,
    ClientOption,
    Dir,
    Http,
    Json,
    Seconds,
    Start,
    Target,
    Touch,
    bench_topic,
    leader_address,
    target,
)
from penstock.cli.offsets import Offsets
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import progress
from penstock.cli.values import parse_size


def consume(
    access: Access,
    fetch_bytes: Annotated[
        str,
        typer.Option(
            "--fetch-bytes", metavar="SIZE", help="Largest answer to a fetch of the raw load."
        ),
    ] = "1M",
    message_bytes: Annotated[
        str, typer.Option("--message-bytes", metavar="SIZE", help="Bytes per message.")
    ] = "100",
    batch_bytes: Annotated[
        str, typer.Option("--batch-bytes", metavar="SIZE", help="Largest batch in the topic.")
    ] = "64K",
    fill_bytes: Annotated[
        str,
        typer.Option(
            "--fill-bytes", metavar="SIZE", help="How much is published before it is read."
        ),
    ] = "256M",
    connections: Annotated[
        int, typer.Option("--connections", min=1, help="Connections of the raw load.")
    ] = 2,
    client: ClientOption = Client.RAW,
    seconds: Seconds = 5.0,
    broker_pid: BrokerPid = None,
    http: Http = None,
    start: Start = False,
    folder: Dir = None,
    touch: Touch = "0",
    json: Json = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Read a topic that is filled for it, from start to end and over again, at full speed."""
    size, batch_size, fetch_size = (
        parse_size(message_bytes),
        parse_size(batch_bytes),
        parse_size(fetch_bytes),
    )
    plan: dict[str, Any] = {
        "bench": "consume",
        "client": client.value,
        "message_bytes": size,
        "batch_bytes": batch_size,
    }
    touch_memory(parse_size(touch))
    with (
        target(access, broker_pid, http, start, folder) as found,
        bench_topic(found.cluster, 1) as topic,
    ):
        end = _fill(found, topic, size, batch_size, parse_size(fill_bytes))
        if client is Client.CONFLUENT:
            load = _confluent(found, topic, end, seconds)
        else:
            plan |= {"fetch_bytes": fetch_size, "connections": connections}
            load = _raw(found, topic, end, fetch_size, connections, seconds)
    print_result(plan | throughput(load), as_json=json or output_format is Format.JSON)


def _fill(found: Target, topic: str, size: int, batch_size: int, total: int) -> int:
    """Publishes `total` bytes to partition 0; the end offset."""
    batch, _ = message_batch(size, batch_size)
    wanted = math.ceil(total / len(batch))
    address = leader_address(found.cluster, topic)
    client = found.cluster.access.client
    load = ProduceLoad(address, topic, [0], batch, connections=1, depth=2, acks=-1, client=client)
    sent = 0
    with progress("filling the topic", wanted) as bar:
        while sent < wanted:
            load.run(0.05)
            bar.advance(load.requests)
            sent += load.requests
    load.finish()
    return Offsets(found.cluster).ends([(topic, 0)])[topic, 0]


def _raw(
    found: Target, topic: str, end: int, fetch_size: int, connections: int, seconds: float
) -> Load:
    load = FetchLoad(
        leader_address(found.cluster, topic),
        topic,
        start=0,
        end=end,
        max_bytes=fetch_size,
        connections=connections,
        client=found.cluster.access.client,
    )
    load.run(WARM_UP_S)
    found.meter.restart()
    took = load.run(seconds)
    cpu = found.meter.read()
    load.finish()
    return Load(took, load.messages, load.bytes, load.requests, cpu)


def _confluent(found: Target, topic: str, end: int, seconds: float) -> Load:
    found.meter.restart()
    messages, size, took = consume_by_client(found.cluster, topic, 0, end, seconds)
    return Load(took, messages, size, 0, found.meter.read())
