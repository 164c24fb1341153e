"""`penstock cluster VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class ClusterGroup(LazyGroup):
    """The commands about the cluster as a whole."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "status": Verb(
            "penstock.cli.cluster.status:status",
            "Show the quorum, the nodes, partitions in danger, moves under way and skew; exit"
            " code 3 when data is unavailable or has lost safety.",
        ),
        "nodes": Verb(
            "penstock.cli.cluster.nodes:nodes",
            "List the nodes with address, rack, state, role in the quorum, leaders, replicas"
            " and disk.",
        ),
        "elect-leaders": Verb(
            "penstock.cli.cluster.elect_leaders:elect_leaders",
            "Give partitions back to their preferred leaders, the first of their replicas; with"
            " --unclean, give those without a leader to any replica that is alive.",
        ),
        "reassign": Verb(
            "penstock.cli.cluster.reassign:reassign",
            "Plan an even spread of the partitions, show it, and carry it out; exit code 3 of"
            " --verify means that it is not done yet.",
        ),
        "drain": Verb(
            "penstock.cli.cluster.drain:drain",
            "Move every replica away from NODE and place no new ones there.",
        ),
        "remove": Verb(
            "penstock.cli.cluster.remove:remove",
            "Take the stopped NODE, which holds no replica any more, out of the voters and the"
            " cluster.",
        ),
        "add-voter": Verb(
            "penstock.cli.cluster.voters:add_voter",
            "Make NODE, which follows the metadata as an observer, a voter of the quorum.",
        ),
        "remove-voter": Verb(
            "penstock.cli.cluster.voters:remove_voter",
            "Take NODE out of the voters; it goes on as an observer and keeps its data.",
        ),
        "features": Verb(
            "penstock.cli.cluster.features:features",
            "Show each feature's finalised level and the levels that every node supports.",
        ),
        "recover-quorum": Verb(
            "penstock.cli.cluster.recover_quorum:recover_quorum",
            "Make the stopped node in DIR the only voter, when the other voters are lost for good.",
        ),
    }
