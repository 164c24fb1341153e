"""`penstock cluster features`: the levels the cluster works at, and the step that raises them.

Newer nodes work at the old level until it is raised here, once no older node will come back.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers, check
from penstock.cli.cluster.options import Yes, confirm, require_yes
from penstock.cli.cluster.state import ClusterState, Feature, gather
from penstock.cli.errors import CliError
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json, print_table, remark
from penstock.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE = 1
"""Kafka's number for a change of level that only goes up."""


def features(
    access: Access,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Raise each to the highest that all nodes support.")
    ] = False,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show each feature's finalised level and the levels that every node supports."""
    if upgrade:
        require_yes(yes, "finalising features")
    brokers = Brokers(access)
    state = gather(brokers)
    raised = [f for f in state.features.values() if (f.supported_max or 0) > f.finalized]
    if not upgrade:
        _print(state, output_format)
        if raised:
            remark("finalise the higher levels with `penstock cluster features --upgrade`")
        _require_answers(state)
        return
    _require_all(state)
    if raised:
        levels = ", ".join(f"{f.name} {f.finalized} -> {f.supported_max}" for f in raised)
        question = f"Finalise {levels}? Nodes of an older release cannot come back afterwards."
        confirm(yes, question)
        _raise(brokers, raised)
        state = gather(brokers)
    else:
        remark("every feature is at the highest level that all nodes support")
    _print(state, output_format)


def _require_answers(state: ClusterState) -> None:
    """What nobody told is not to be taken for all there is."""
    if state.unreachable:
        raise CliError(f"not every node was asked: {'; '.join(state.problems)}")


def _require_all(state: ClusterState) -> None:
    """A node that is away may be of an older release."""
    _require_answers(state)
    away = [node.id for node in state.nodes.values() if node.fenced]
    if away:
        raise CliError(
            f"node {away[0]} is away, and may not support a higher level: start it, or remove it"
            f" with `penstock cluster remove {away[0]}`"
        )


def _raise(brokers: Brokers, raised: list[Feature]) -> None:
    request = UpdateFeaturesRequest(
        timeout_ms=brokers.timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=f.name, max_version_level=f.supported_max, upgrade_type=UPGRADE
            )
            for f in raised
            if f.supported_max is not None
        ],
    )
    answer = brokers.ask(request, UpdateFeaturesResponse, "finalise features")
    for result in answer.results:
        check(result.error_code, result.error_message, f"finalise {result.feature}")
    check(answer.error_code, answer.error_message, "finalise features")


def _print(state: ClusterState, output_format: Format) -> None:
    rows = [
        (f.name, f.finalized, f.supported_min, f.supported_max) for f in state.features.values()
    ]
    columns = ("feature", "finalized", "supported_min", "supported_max")
    if output_format is Format.JSON:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        shown = [["unknown" if cell is None else cell for cell in row] for row in rows]
        print_table(("feature", "finalised", "lowest", "highest"), shown)
