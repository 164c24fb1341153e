"""`penstock bench latency`: how long a message takes from producer to consumer at a given rate."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.bench.broker import touch_memory
from penstock.cli.bench.confluent import latency as latency_by_client
from penstock.cli.bench.raw_latency import LatencyRun
from penstock.cli.bench.report import percentiles, print_result
from penstock.cli.bench.requests import batch_of
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
    Format,
    OutputFormat,
)
from penstock.cli.values import parse_size


def latency(
    access: Access,
    rate: Annotated[
        float, typer.Option("--rate", min=1, metavar="N", help="Messages per second.")
    ] = 1000,
    per_request: Annotated[
        int,
        typer.Option(
            "--messages-per-request", min=1, help="Messages that are sent together (raw load)."
        ),
    ] = 1,
    message_bytes: Annotated[
        str, typer.Option("--message-bytes", metavar="SIZE", help="Bytes per message.")
    ] = "100",
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
    """Publish at a fixed rate and long-poll on another connection; latency counts from when a
    message was due.
    """
    size = parse_size(message_bytes)
    if client is Client.CONFLUENT and per_request != 1:
        raise usage_error(
            "--messages-per-request is for the raw load: librdkafka batches by itself"
        )
    plan: dict[str, Any] = {
        "bench": "latency",
        "client": client.value,
        "rate": rate,
        "messages_per_request": per_request,
        "message_bytes": size,
    }
    touch_memory(parse_size(touch))
    with (
        target(access, broker_pid, http, start, folder) as found,
        bench_topic(found.cluster, 1) as topic,
    ):
        if client is Client.CONFLUENT:
            result = _confluent(found, topic, size, rate, seconds)
        else:
            result = _raw(found, topic, size, per_request, rate, seconds)
    print_result(plan | result, as_json=json or output_format is Format.JSON)


def _raw(
    found: Target, topic: str, size: int, per_request: int, rate: float, seconds: float
) -> dict[str, Any]:
    run = LatencyRun(
        leader_address(found.cluster, topic),
        topic,
        batch_of(size, per_request),
        per_request,
        found.cluster.access.client,
    )
    run.run(WARM_UP_S, rate)
    found.meter.restart()
    latencies, took = run.run(seconds, rate)
    cpu = found.meter.read()
    run.finish()
    return _result(latencies, took, len(latencies) * per_request, cpu)


def _confluent(found: Target, topic: str, size: int, rate: float, seconds: float) -> dict[str, Any]:
    found.meter.restart()
    latencies, took = latency_by_client(found.cluster, topic, bytes(size), rate, seconds)
    return _result(latencies, took, len(latencies), found.meter.read())


def _result(latencies: list[int], took: float, messages: int, cpu: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "seconds": round(took, 3),
        "messages": messages,
        "messages_per_s": round(messages / took),
        **percentiles(latencies),
    }
    if cpu is not None:
        result["broker_cores"] = round(cpu / took, 3)
    return result
