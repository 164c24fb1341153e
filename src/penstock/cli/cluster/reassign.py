"""`penstock cluster reassign`: spread partitions evenly, by a plan that is shown before it is done.

The plan is made here, from what the brokers say, and carried out by the cluster. `--verify` and
`--cancel` look at what is under way, whoever began it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.choice import choose
from penstock.cli.cluster.execution import cancel, execute, tidy, unfinished
from penstock.cli.cluster.moves import from_json, moves_to, to_json
from penstock.cli.cluster.options import (
    Throttle,
    Topics,
    Yes,
    confirm,
    require_yes,
    throttle_rate,
)
from penstock.cli.cluster.planning import balanced
from penstock.cli.cluster.show_moves import print_moves
from penstock.cli.cluster.state import (
    ClusterState,
    Key,
    Reassignment,
    gather,
    read_partitions,
    read_reassignments,
)
from penstock.cli.errors import CliError, usage_error
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json, print_table, remark

EXIT_UNFINISHED = 3


def reassign(
    access: Access,
    topics: Topics = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", min=1, metavar="N", help="Give each partition N replicas."
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="FILE", help="Carry out the plan in FILE (Kafka's JSON)."),
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Write the plan to FILE.")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="Write the way it was to FILE, a plan to go back by."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and change nothing.")
    ] = False,
    throttle: Throttle = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Tell whether all is done; take a left-over throttle away."),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Undo what is under way and not done.")
    ] = False,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> int:
    """Plan an even spread of the partitions, show it, and carry it out; exit code 3 of --verify
    means that it is not done yet.
    """
    if verify and cancel:
        raise usage_error("--verify and --cancel exclude each other: keep one of them")
    if plan is not None and (topics or replication_factor is not None):
        raise usage_error("--plan excludes --topic and --replication-factor: the file says all")
    rate = throttle_rate(throttle)
    if not (verify or cancel or dry_run):
        require_yes(yes, "a reassignment")
    brokers = Brokers(access)
    as_json = output_format is Format.JSON
    if verify:
        return _verify(brokers, _read_plan(plan), as_json=as_json)
    if cancel:
        return _cancel(brokers, topics or [], as_json=as_json)
    state = quiet_state(brokers)
    if plan is not None:
        wanted = _read_plan(plan)
    else:
        wanted = balanced(state, topics or [], replication_factor)
    carry_out(brokers, state, wanted, rate, save, export, dry_run=dry_run, yes=yes, as_json=as_json)
    return 0


def quiet_state(brokers: Brokers) -> ClusterState:
    """The state of a cluster in which nothing is being moved; a plan would be about the past."""
    state = gather(brokers)
    if state.quorum is None:
        raise CliError(state.problems[0])
    if state.reassignments:
        raise CliError(
            f"a reassignment of {plural(len(state.reassignments), 'partition')} is under way: wait"
            " until `penstock cluster reassign --verify` tells that it is done, or undo it with"
            " `penstock cluster reassign --cancel`"
        )
    return state


def carry_out(
    brokers: Brokers,
    state: ClusterState,
    wanted: dict[Key, tuple[int, ...]],
    throttle: int | None,
    save: str | None = None,
    export: str | None = None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    first: Callable[[], None] | None = None,
) -> None:
    """Shows what has to be moved, asks, and does it, `first` before all."""
    moves = moves_to(state, wanted)
    print_moves(state, moves, as_json=as_json)
    if save is not None:
        Path(save).write_text(to_json({move.key: move.new for move in moves}), encoding="utf-8")
    if export is not None:
        Path(export).write_text(to_json({move.key: move.now for move in moves}), encoding="utf-8")
    if not moves:
        remark("nothing is to be moved: the partitions lie as they should")
        if first is not None:
            first()
        return
    if dry_run:
        remark("nothing was changed: leave out --dry-run to carry it out")
        return
    confirm(yes, f"Move {plural(len(moves), 'partition')}?")
    if first is not None:
        first()
    execute(brokers, state, moves, throttle)
    remark(f"moved {plural(len(moves), 'partition')}")


def _read_plan(file: str | None) -> dict[Key, tuple[int, ...]]:
    return {} if file is None else from_json(Path(file).read_text(encoding="utf-8"), file)


def _verify(brokers: Brokers, plan: dict[Key, tuple[int, ...]], *, as_json: bool) -> int:
    moving = list(read_reassignments(brokers).values())
    left = unfinished(brokers, plan)
    _print_moving(moving, left, as_json=as_json)
    if moving:
        return EXIT_UNFINISHED
    if tidy(brokers):
        remark("took the throttle away")
    return EXIT_UNFINISHED if left else 0


def _print_moving(moving: list[Reassignment], left: list[str], *, as_json: bool) -> None:
    rows = [(m.topic, m.number, *(",".join(map(str, ids)) or "-" for ids in m[2:])) for m in moving]
    if as_json:
        facts = [
            {
                "topic": m.topic,
                "partition": m.number,
                "replicas": list(m.replicas),
                "adding": list(m.adding),
                "removing": list(m.removing),
            }
            for m in moving
        ]
        print_json({"done": not moving and not left, "moving": facts, "not_as_planned": left})
        return
    if rows:
        print_table(("topic", "partition", "replicas", "adding", "removing"), rows)
    else:
        print("no reassignment is under way")
    for sentence in left:
        print(sentence)


def _cancel(brokers: Brokers, topics: list[str], *, as_json: bool) -> int:
    chosen = choose(read_partitions(brokers), topics)
    keys = [key for key in read_reassignments(brokers) if key in chosen]
    if keys:
        cancel(brokers, keys)
    if tidy(brokers):
        remark("took the throttle away")
    if as_json:
        print_json([{"topic": topic, "partition": number} for topic, number in keys])
    else:
        print(f"cancelled the reassignment of {plural(len(keys), 'partition')}")
    return 0
