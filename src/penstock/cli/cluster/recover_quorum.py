"""`penstock cluster recover-quorum`: go on with one voter when the majority is lost for good.

The one command about a cluster that asks no broker: it works on the folder of a stopped node.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.base.errors import PenstockError
from penstock.cli.cluster.options import Yes, confirm, require_yes
from penstock.cli.encryption.folder import node_config
from penstock.cli.errors import CliError
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, remark
from penstock.keys.providers import data_keys
from penstock.node.quorum_recovery import StoppedNode

_EXPLANATION = """\
Node {node} of cluster {cluster} becomes the only voter of the metadata quorum, without {lost}.

Do this only when so many voters are lost for good that the quorum cannot come back: restarting one
of them is always better. What can be lost, and cannot be had back:
  - changes of topics, settings and in-sync replicas that the lost voters committed after what this
    node has (its metadata ends in epoch {epoch} at offset {end}); choose the node with the highest;
  - what was published to partitions whose replicas in sync were all on lost nodes: they stay
    without a leader until `penstock cluster elect-leaders --unclean` lets another replica lead.
A node that was given up must not come back with its old data folder, only with an empty one.
"""


def recover_quorum(
    data_dir: Annotated[
        str,
        typer.Option("--data-dir", metavar="DIR", help="The data folder of the stopped node."),
    ],
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The node's settings: needed if its metadata is encrypted.",
        ),
    ] = None,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Make the stopped node in DIR the only voter, when the other voters are lost for good."""
    require_yes(yes, "recovering a quorum")
    try:
        settings = node_config(config, None)
        key_id = settings.penstock_encryption_key_id
        node = StoppedNode(data_dir, data_keys(settings), key_id)
    except PenstockError as e:
        raise CliError(f"cannot recover the quorum: {e}") from None
    try:
        survivor = node.survivor
        if not survivor.lost:
            raise CliError(f"node {survivor.me.id} is the only voter already: start it")
        remark(
            _EXPLANATION.format(
                node=survivor.me.id,
                cluster=survivor.cluster_id,
                lost=" and ".join(f"node {voter}" for voter in survivor.lost),
                end=survivor.end_offset,
                epoch=survivor.epoch,
            )
        )
        confirm(yes, f"Make node {survivor.me.id} the only voter?")
        node.become_only_voter()
    except PenstockError as e:
        raise CliError(f"cannot recover the quorum: {e}") from None
    finally:
        node.close()
    if output_format is Format.JSON:
        print_json({"node": survivor.me.id, "voters": [survivor.me.id], "lost": survivor.lost})
    else:
        print(f"node {survivor.me.id} is the only voter now: start it, then let others join")
