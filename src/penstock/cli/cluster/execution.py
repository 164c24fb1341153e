"""A reassignment from the request to the last copied byte, and what can be done meanwhile.

The cluster does the work; this only asks for it and looks on, so that leaving (Ctrl-C) stops
nothing. Progress is what the new replicas hold of the bytes that they will have.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from penstock.cli.cluster.asking import Brokers, check, reason
from penstock.cli.cluster.elections import PREFERRED, elect
from penstock.cli.cluster.moves import Move, bytes_to_move
from penstock.cli.cluster.state import (
    ClusterState,
    Key,
    gather,
    read_disk,
    read_partitions,
    read_reassignments,
)
from penstock.cli.cluster.throttle import clear_throttle, set_throttle
from penstock.cli.errors import EXIT_INTERRUPTED, CliError
from penstock.cli.output import plural, progress
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

LOOK_EVERY_S = 0.5
BLIND_S_MAX = 30.0
"""How long the cluster may be unable to tell how far it is."""
SETTLED_S_MAX = 10.0
"""How long the nodes may take to hear that a reassignment is complete."""

_GOES_ON = (
    "the reassignment goes on: `penstock cluster status --watch 2` shows it, `penstock cluster"
    " reassign --verify` tells when it is done and takes the throttle away, `penstock cluster"
    " reassign --cancel` undoes what is not done"
)


def execute(brokers: Brokers, state: ClusterState, moves: list[Move], throttle: int | None) -> None:
    """Carries the moves out and returns when they are complete and their leaders in place."""
    _require_leaders(state, moves)
    if throttle is not None:
        set_throttle(brokers, state, moves, throttle)
    try:
        submit(brokers, {move.key: move.new for move in moves})
    except CliError:
        if throttle is not None:
            tidy(brokers, moves)
        raise
    try:
        watch(brokers, state, moves)
    except KeyboardInterrupt:
        raise CliError(f"stopped looking on; {_GOES_ON}", EXIT_INTERRUPTED) from None
    if throttle is not None:
        clear_throttle(brokers, state, moves)
    _require_done(brokers, moves)
    elect(brokers, [move.key for move in moves], PREFERRED, "elect the preferred leaders")


def _require_leaders(state: ClusterState, moves: list[Move]) -> None:
    """A new replica copies from the leader; without one it would wait for ever."""
    for move in moves:
        if state.partitions[move.key].leader is None and move.adding:
            raise CliError(
                f"{state.partitions[move.key]} has no leader to copy from: start one of its"
                " replicas that were in sync, or see `penstock cluster elect-leaders --unclean`"
            )


def submit(brokers: Brokers, wanted: Mapping[Key, Iterable[int] | None]) -> None:
    """Asks for the new replicas of each partition; None cancels what is under way there."""
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), replicas in wanted.items():
        entry = ReassignablePartition(
            partition_index=number, replicas=None if replicas is None else list(replicas)
        )
        by_topic.setdefault(topic, []).append(entry)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=brokers.timeout_ms,
        topics=[ReassignableTopic(name=t, partitions=ps) for t, ps in by_topic.items()],
    )
    doing = "reassign partitions"
    answer = brokers.ask(request, AlterPartitionReassignmentsResponse, doing)
    check(answer.error_code, answer.error_message, doing)
    refused = [
        (f"{topic.name}-{p.partition_index}", reason(p.error_code, p.error_message))
        for topic in answer.responses
        for p in topic.partitions
        if p.error_code
    ]
    if refused:
        others = len(wanted) - len(refused)
        raise CliError(
            f"cannot reassign {plural(len(refused), 'partition')}, {refused[0][0]} among them:"
            f" {refused[0][1]}; {plural(others, 'other partition')} went on, see `penstock cluster"
            " reassign --verify`"
        )


def watch(brokers: Brokers, state: ClusterState, moves: list[Move]) -> None:
    """Returns when none of the moves is under way any more; shows a bar to a person."""
    total = bytes_to_move(state, moves)
    done = 0
    what = f"moving {plural(len(moves), 'partition')}"
    with progress(what, total or len(moves), in_bytes=bool(total)) as bar:
        while moving := _still_moving(brokers, moves):
            if bar.is_seen:
                now = len(moves) - len(moving)
                if total:
                    now = total - _bytes_left(brokers, state, moving)
                bar.advance(max(0, now - done))
                done = max(done, now)
            time.sleep(LOOK_EVERY_S)


def _still_moving(brokers: Brokers, moves: list[Move]) -> list[Move]:
    """The moves that are under way; while the quorum elects a leader, nobody can tell."""
    deadline = time.monotonic() + BLIND_S_MAX
    while True:
        try:
            left = read_reassignments(brokers)
            return [move for move in moves if move.key in left]
        except CliError as e:
            if time.monotonic() > deadline:
                raise CliError(f"{e.sentence}; {_GOES_ON}") from None
        time.sleep(LOOK_EVERY_S)


def _bytes_left(brokers: Brokers, state: ClusterState, moving: list[Move]) -> int:
    """What the new replicas still lack; one that cannot be asked counts as empty."""
    held: dict[int, dict[Key, int]] = {}
    for node in sorted({node for move in moving for node in move.adding}):
        try:
            held[node] = read_disk(brokers, state.nodes[node]).sizes
        except CliError:
            held[node] = {}
    return sum(
        max(0, state.size_of(move.key) - held[node].get(move.key, 0))
        for move in moving
        for node in move.adding
    )


def unfinished(brokers: Brokers, wanted: Mapping[Key, Iterable[int]]) -> list[str]:
    """The partitions that do not lie as wanted, in words."""
    partitions = read_partitions(brokers)
    left = []
    for key, replicas in sorted(wanted.items()):
        partition = partitions.get(key)
        if partition is None:
            left.append(f"{key[0]}-{key[1]} does not exist")
        elif partition.replicas != tuple(replicas):
            have, want = (",".join(map(str, r)) for r in (partition.replicas, replicas))
            left.append(f"{partition} is on {have}, not on {want}")
    return left


def _require_done(brokers: Brokers, moves: list[Move]) -> None:
    """The controller says that it is complete; the broker that is asked may hear it later."""
    wanted = {move.key: move.new for move in moves}
    deadline = time.monotonic() + SETTLED_S_MAX
    while left := unfinished(brokers, wanted):
        if time.monotonic() > deadline:
            raise CliError(
                f"{plural(len(left), 'partition')} did not get where planned: {left[0]};"
                " somebody cancelled the reassignment or made another"
            )
        time.sleep(LOOK_EVERY_S)


def cancel(brokers: Brokers, keys: Iterable[Key]) -> None:
    """Puts the partitions back to the replicas that they had."""
    submit(brokers, dict.fromkeys(keys))


def tidy(brokers: Brokers, moves: Iterable[Move] = ()) -> bool:
    """Takes a throttle away that nothing needs any more, also that of `moves`, if it has just been
    set; whether there was one.
    """
    state = gather(brokers)
    return not state.reassignments and clear_throttle(brokers, state, moves)
