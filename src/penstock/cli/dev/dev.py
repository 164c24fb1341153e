"""The options of `penstock dev`, and what it tells when the cluster is ready."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.dev.folders import LocalNode, lay_out
from penstock.cli.dev.processes import LocalCluster
from penstock.cli.dev.security import LocalSecurity
from penstock.cli.errors import usage_error
from penstock.cli.output import remark
from penstock.config.load import load_settings
from penstock.config.table import ConfigError

DATA_DIR_DEFAULT = "./penstock-dev"


def dev(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            metavar="N",
            help="How many nodes; all that the folder holds if left out, or 3 for a new one.",
        ),
    ] = None,
    data_dir: Annotated[
        str, typer.Option("--data-dir", metavar="DIR", help="Node i lives in DIR/node-i.")
    ] = DATA_DIR_DEFAULT,
    base_port: Annotated[
        int | None,
        typer.Option(
            "--base-port",
            min=1024,
            max=65_535,
            metavar="P",
            help="Node i listens on port P+i-1; 9092 for a new folder.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting for all nodes; may be repeated."
        ),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Make certificates and users: clients log in over TLS, by the settings in"
            " DIR/security/admin.properties.",
        ),
    ] = False,
) -> None:
    """Run a local cluster until SIGTERM or Ctrl-C; more nodes than before make it grow."""
    try:
        given = load_settings(None, settings or [])
    except ConfigError as e:
        raise usage_error(str(e)) from None
    laid_out = lay_out(Path(data_dir), nodes, base_port, given, secure=secure)
    security = LocalSecurity(Path(data_dir)) if laid_out[0].is_secure else None
    if security is not None:
        security.secure(laid_out)
    addresses = [node.address for node in laid_out]  # which also checks their settings
    if security is not None:
        security.write(laid_out)
    for node in laid_out:
        node.write()
    client = None if security is None else security.config_path
    cluster = LocalCluster(laid_out, client)

    def on_ready() -> None:
        _introduce(laid_out)
        at = f"bootstrap={','.join(addresses)}"
        sys.stdout.write(f"ready: {at}\n" if client is None else f"ready: {at} config={client}\n")
        sys.stdout.flush()

    cluster.run(on_ready)


def _introduce(nodes: list[LocalNode]) -> None:
    for node in nodes:
        http = node.settings.get("penstock.http.listen")
        at = f"kafka={node.address}" + (f" http={http}" if http else "")
        remark(f"node {node.number}: {at} folder={node.folder}")
