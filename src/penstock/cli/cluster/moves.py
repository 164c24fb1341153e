"""Changes of replica assignments: what they cost, how the cluster looks after them, and their file.

Pure. The file has the form of Kafka's reassignment tool, so that either can read what the other
wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from penstock.cli.cluster.state import ClusterState, Disk, Key
from penstock.cli.errors import CliError

FILE_VERSION = 1
Assignment = Mapping[Key, Sequence[int]]


class Move(NamedTuple):
    """One partition's replicas now and then; the first one is the preferred leader."""

    topic: str
    number: int
    now: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic, self.number

    @property
    def adding(self) -> list[int]:
        return [node for node in self.new if node not in self.now]

    @property
    def removing(self) -> list[int]:
        return [node for node in self.now if node not in self.new]


def moves_to(state: ClusterState, wanted: Assignment) -> list[Move]:
    """What has to be changed so that the partitions lie as `wanted`."""
    moves = []
    for key, replicas in sorted(wanted.items()):
        partition = state.partitions.get(key)
        if partition is None:
            raise CliError(f"the plan names {key[0]}-{key[1]}, which does not exist")
        unknown = [node for node in replicas if node not in state.nodes]
        if unknown:
            raise CliError(f"the plan puts {partition} on node {unknown[0]}, which does not exist")
        if not replicas or len(set(replicas)) != len(replicas):
            raise CliError(f"the plan gives {partition} no replicas, or one of them twice")
        if tuple(replicas) != partition.replicas:
            moves.append(Move(*key, partition.replicas, tuple(replicas)))
    return moves


def bytes_to_move(state: ClusterState, moves: Iterable[Move]) -> int:
    """What has to go over the network."""
    return sum(len(move.adding) * state.size_of(move.key) for move in moves)


def after(state: ClusterState, moves: Iterable[Move]) -> ClusterState:
    """The cluster when the moves are done and every preferred replica leads."""
    partitions = {
        key: p._replace(leader=p.replicas[0] if p.replicas else None)
        for key, p in state.partitions.items()
    }
    disks = {node: disk._replace(sizes=dict(disk.sizes)) for node, disk in state.disks.items()}
    for move in moves:
        partition = partitions[move.key]
        partitions[move.key] = partition._replace(
            leader=move.new[0], replicas=move.new, isr=move.new
        )
        for node in move.adding:
            of = disks.setdefault(node, Disk(0, 0, False, {}))
            of.sizes[move.key] = state.size_of(move.key)
        for node in move.removing:
            if node in disks:
                disks[node].sizes.pop(move.key, None)
    return replace(state, partitions=partitions, disks=disks, reassignments={})


def to_json(assignment: Assignment) -> str:
    """The text of a file that Kafka's tool reads, too."""
    partitions = [
        {
            "topic": topic,
            "partition": number,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for (topic, number), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": FILE_VERSION, "partitions": partitions}, indent=2) + "\n"


def from_json(text: str, file: str) -> dict[Key, tuple[int, ...]]:
    """The assignment in such a file."""
    try:
        document: Any = json.loads(text)
        if document["version"] != FILE_VERSION:
            raise ValueError(f"version {document['version']} is not known")
        return {
            (str(entry["topic"]), int(entry["partition"])): tuple(map(int, entry["replicas"]))
            for entry in document["partitions"]
        }
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise CliError(
            f"{file} is not a plan ({type(e).__name__}: {e}): write one with `penstock cluster"
            " reassign --save FILE`"
        ) from None
