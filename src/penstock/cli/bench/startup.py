"""`penstock bench startup`: how long a node takes from exec to its ready line."""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.bench import broker
from penstock.cli.bench.report import print_result
from penstock.cli.bench.target import Dir, Json
from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import progress
from penstock.cli.topic.create import create_topic

TOPIC = "penstock-bench"
MESSAGES_PER_PARTITION = 10
FILL_S_MAX = 120.0


def startup(
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", min=0, help="Partitions with data to start with; 0 for an empty folder."
        ),
    ] = 0,
    kill: Annotated[
        bool, typer.Option("--kill", help="Start after kill -9 instead of after a clean stop.")
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How often to measure.")] = 3,
    folder: Dir = None,
    json: Json = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Start nodes on core 0 and time them; the data is made for it and removed afterwards."""
    times = []
    with broker.temporary_data_dir(folder) as root:
        if partitions:
            with broker.running_node(root, kill=kill) as node:
                _fill(node.bootstrap, partitions)
        with progress("starting nodes", repeat) as bar:
            for number in range(repeat):
                data_dir = root if partitions else f"{root}/{number}"
                with broker.running_node(data_dir, kill=kill and bool(partitions)) as node:
                    times.append(node.ready_s)
                bar.advance()
    result: dict[str, Any] = {
        "bench": "startup",
        "partitions": partitions,
        "after": "kill" if kill and partitions else "clean stop" if partitions else "nothing",
        "repeats": repeat,
        "ready_s_median": round(statistics.median(times), 3),
        "ready_s_min": round(min(times), 3),
        "ready_s_max": round(max(times), 3),
    }
    print_result(result, as_json=json or output_format is Format.JSON)


def _fill(bootstrap: str, partitions: int) -> None:
    """Some messages in each of `partitions` partitions."""
    cluster = Cluster(Access.of(bootstrap, FILL_S_MAX))
    create_topic(cluster, cluster.admin(), TOPIC, partitions, None, {}, may_exist=False)
    producer = cluster.producer({"linger.ms": 50})
    for partition in range(partitions):
        for number in range(MESSAGES_PER_PARTITION):
            producer.produce(TOPIC, b"message %d" % number, partition=partition)
        producer.poll(0)
    if left := producer.flush(FILL_S_MAX):
        raise CliError(f"{left} messages could not be published: try `penstock serve` by itself")
