"""`penstock serve` in the tree of commands: its options and their help."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.serve_node import ServeOptions, serve_node


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", metavar="DIR", help="Where the data lies (log.dirs)."),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where Kafka clients connect (listeners); may be repeated. Without a host (:9092)"
            " it is every interface, and clients are told this machine's name.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="HOST:PORT", help="Where /metrics, /healthz and /readyz are served."
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="File with settings: TOML, or as Kafka's server.properties if its name ends with"
            " .properties.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A broker setting, above the file; may be repeated."
        ),
    ] = None,
) -> int:
    """Run a Penstock node until SIGTERM or Ctrl-C."""
    return serve_node(ServeOptions(data_dir, listen or [], http, config, settings or []))
