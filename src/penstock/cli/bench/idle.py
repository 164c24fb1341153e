"""`penstock bench idle`: the memory of a node that has nothing to do, alone and with
connections.
"""

from __future__ import annotations

import resource
import time
from typing import Annotated, Any

import typer

from penstock.cli.bench import broker
from penstock.cli.bench.report import MB, print_result
from penstock.cli.bench.target import Dir, Json
from penstock.cli.errors import usage_error
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import progress
from penstock.kafka.client import Client, parse_addresses
from penstock.kafka.connection import Connection
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SETTLE_S = 2.0
SPARE_DESCRIPTORS = 100

ANSWER_TIMEOUT_S = 30.0


def idle(
    connections: Annotated[
        int,
        typer.Option(
            "--connections", min=0, help="Idle connections to hold, each after one ApiVersions."
        ),
    ] = 1000,
    folder: Dir = None,
    json: Json = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Start a node and read its resident memory, then again while it holds idle connections."""
    allow_descriptors(connections + SPARE_DESCRIPTORS)
    limits = (f"max.connections={connections + SPARE_DESCRIPTORS}",)
    with (
        broker.temporary_data_dir(folder) as root,
        broker.running_node(root, settings=limits) as node,
    ):
        time.sleep(SETTLE_S)
        alone = broker.resident_bytes(node.pid)
        held = _connect(node.bootstrap, connections)
        time.sleep(SETTLE_S)
        full = broker.resident_bytes(node.pid)
        for connection in held:
            connection.close()
    result: dict[str, Any] = {
        "bench": "idle",
        "rss_mb": round(alone / MB, 1),
        "connections": connections,
        "rss_with_connections_mb": round(full / MB, 1),
    }
    if connections:
        result["bytes_per_connection"] = (full - alone) // connections
    print_result(result, as_json=json or output_format is Format.JSON)


def allow_descriptors(wanted: int) -> None:
    """Raises this process's limit of open files, which the node inherits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise usage_error(
            f"this process may open {hard} files: give fewer --connections or raise `ulimit -Hn`"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _connect(bootstrap: str, count: int) -> list[Connection]:
    """Connections that have asked for the API versions, as a client does, and then keep quiet."""
    address = parse_addresses(bootstrap)[0]
    client = Client("penstock-bench", answer_s=ANSWER_TIMEOUT_S)
    held = []
    with progress("connecting", count) as bar:
        for _ in range(count):
            connection = Connection(address, client)
            connection.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            held.append(connection)
            bar.advance()
    return held
