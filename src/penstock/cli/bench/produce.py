"""`penstock bench produce`: how much a broker takes in, and what that costs it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.bench.broker import touch_memory
from penstock.cli.bench.confluent import ConfluentProducer
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
from penstock.cli.errors import usage_error
from penstock.cli.options import (
    Acks,
    Format,
    OutputFormat,
)
from penstock.cli.values import parse_size


def produce(
    access: Access,
    message_bytes: Annotated[
        str, typer.Option("--message-bytes", metavar="SIZE", help="Bytes per message.")
    ] = "100",
    batch_bytes: Annotated[
        str,
        typer.Option(
            "--batch-bytes", metavar="SIZE", help="Largest batch; 0 for one message per batch."
        ),
    ] = "16K",
    request_bytes: Annotated[
        str | None,
        typer.Option(
            "--request-bytes",
            metavar="SIZE",
            help="Fill requests with batches for several partitions up to this size; one batch"
            " if left out.",
        ),
    ] = None,
    connections: Annotated[
        int, typer.Option("--connections", min=1, help="Connections of the raw load.")
    ] = 4,
    depth: Annotated[
        int, typer.Option("--depth", min=1, help="Requests in flight per connection.")
    ] = 2,
    acks: Annotated[Acks, typer.Option("--acks", help="Acknowledgements to ask for.")] = Acks.ALL,
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
    """Publish at full speed to a topic made for it and deleted afterwards."""
    size, batch_size = parse_size(message_bytes), parse_size(batch_bytes)
    request_size = batch_size if request_bytes is None else parse_size(request_bytes)
    if request_size < batch_size:
        raise usage_error(
            "--request-bytes is less than --batch-bytes: a request holds whole batches"
        )
    partitions = max(1, request_size // batch_size) if batch_size else 1
    plan: dict[str, Any] = {
        "bench": "produce",
        "client": client.value,
        "message_bytes": size,
        "batch_bytes": batch_size,
        "acks": acks.value,
    }
    touch_memory(parse_size(touch))
    with (
        target(access, broker_pid, http, start, folder) as found,
        bench_topic(found.cluster, partitions) as topic,
    ):
        if client is Client.CONFLUENT:
            load = _confluent(found, topic, size, batch_size, acks, seconds)
        else:
            plan |= {"batches_per_request": partitions, "connections": connections, "depth": depth}
            load = _raw(
                found, topic, size, batch_size, partitions, connections, depth, acks, seconds
            )
    print_result(plan | throughput(load), as_json=json or output_format is Format.JSON)


def _raw(
    found: Target,
    topic: str,
    size: int,
    batch_size: int,
    partitions: int,
    connections: int,
    depth: int,
    acks: Acks,
    seconds: float,
) -> Load:
    batch, count = message_batch(size, batch_size)
    load = ProduceLoad(
        leader_address(found.cluster, topic),
        topic,
        list(range(partitions)),
        batch,
        connections=connections,
        depth=depth,
        acks=-1 if acks is Acks.ALL else int(acks.value),
        client=found.cluster.access.client,
    )
    load.run(WARM_UP_S)
    found.meter.restart()
    took = load.run(seconds)
    cpu = found.meter.read()
    requests = load.requests
    load.finish()
    messages = requests * count * partitions
    return Load(took, messages, messages * size, requests, cpu)


def _confluent(
    found: Target, topic: str, size: int, batch_size: int, acks: Acks, seconds: float
) -> Load:
    settings = {"acks": acks.value, "linger.ms": 5, "batch.size": max(batch_size, 1)}
    producer = ConfluentProducer(found.cluster, topic, bytes(size), settings)
    producer.run(WARM_UP_S)
    found.meter.restart()
    messages, took = producer.run(seconds)
    return Load(took, messages, messages * size, 0, found.meter.read())
