"""The throttle of a reassignment, set as Kafka's own tool sets it.

Two settings of each topic name the replicas that are throttled (those that send and those that
receive), two of each node bound their bytes per second. A throttle that outlives its reassignment
slows every later catch-up, so it is taken away at the end, by `--verify` and by `--cancel`.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.configs import (
    Change,
    alter_node,
    alter_topics,
    read_node,
    read_topics,
)
from penstock.cli.cluster.moves import Move
from penstock.cli.cluster.state import ClusterState

TOPIC_SETTINGS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
NODE_SETTINGS = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
TOPICS_AT_ONCE_MAX = 500


def set_throttle(
    brokers: Brokers, state: ClusterState, moves: Iterable[Move], bytes_per_s: int
) -> None:
    """Bounds the copying of these moves on every node that takes part in it."""
    doing = "set the throttle"
    senders: dict[str, list[str]] = {}
    receivers: dict[str, list[str]] = {}
    nodes: set[int] = set()
    for move in moves:
        senders.setdefault(move.topic, []).extend(f"{move.number}:{n}" for n in move.now)
        receivers.setdefault(move.topic, []).extend(f"{move.number}:{n}" for n in move.adding)
        nodes.update(move.now, move.new)
    rates = [Change(name, str(bytes_per_s)) for name in NODE_SETTINGS]
    for node in sorted(nodes):
        if not state.nodes[node].fenced:
            alter_node(brokers, state.nodes[node], rates, doing)
    changes = {
        topic: [
            Change(TOPIC_SETTINGS[0], ",".join(senders[topic])),
            Change(TOPIC_SETTINGS[1], ",".join(receivers[topic])),
        ]
        for topic in senders
    }
    alter_topics(brokers, changes, doing)


def clear_throttle(brokers: Brokers, state: ClusterState, moves: Iterable[Move] = ()) -> bool:
    """Takes away every throttle of the cluster's topics and nodes; whether there was one.

    That of `moves` has just been set: a broker that is asked for it may not have heard of it.
    """
    doing = "take the throttle away"
    moves = list(moves)
    changes = {move.topic: [Change(name, None) for name in TOPIC_SETTINGS] for move in moves}
    throttled = {node for move in moves for node in (*move.now, *move.new)}
    topics = sorted({topic for topic, _ in state.partitions} - changes.keys())
    for start in range(0, len(topics), TOPICS_AT_ONCE_MAX):
        names = topics[start : start + TOPICS_AT_ONCE_MAX]
        found = read_topics(brokers, names, list(TOPIC_SETTINGS), doing, own=True)
        changes |= {
            topic: [Change(name, None) for name in values]
            for topic, values in found.items()
            if values
        }
    alter_topics(brokers, changes, doing)
    there_was = bool(changes)
    for node in state.nodes.values():
        rates: Iterable[str] = ()
        if not node.fenced:
            known = node.id in throttled
            rates = NODE_SETTINGS if known else read_node(brokers, node, [*NODE_SETTINGS], doing)
        if rates:
            alter_node(brokers, node, [Change(name, None) for name in rates], doing)
            there_was = True
    return there_was
