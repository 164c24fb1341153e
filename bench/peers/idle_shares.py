"""The memory that share-partitions need which nobody uses for the moment.

A hundred groups have consumed all of a topic of a hundred partitions, and keep their sessions. What
a server keeps for that is compared with what it kept before; the topic, its records and the code
that serves a first group are there by then.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from tests.support.raw import RawClient
from tests.support.share_groups import set_group
from tests.support.waiting import eventually

from penstock.cli.bench.requests import batch_of, check_produce_response, produce_frame

from .kafka_wire import KafkaWire
from .queue_load import QueueLoad
from .queue_wire import BY_DEFAULT
from .server import Server
from .share_member import Place, ShareMember
from .share_queue import BEAT_S, JOIN_S_MAX, Joining, coordinator_of
from .sockets import connect
from .wire import PeerError

SIZE = 100
SETTLE_S = 2.0
GROUPS_AT_ONCE = 10
"""A thousand share-partitions that are new: more at a time, and writes of their states may take
longer than Kafka waits for them.
"""
CONSUME_S_MAX = 60.0


def added_bytes(server: Server, topic: str, *, groups: int, partitions: int) -> int:
    """For so many groups on one topic of so many partitions."""
    wire = KafkaWire(server.host, server.port, fsync=False)
    wire.make(topic, partitions=partitions)
    try:
        with RawClient(server.host, server.port) as client:
            batch = batch_of(SIZE, 1)
            client.socket.sendall(produce_frame(topic, list(range(partitions)), batch, acks=1))
            check_produce_response(client.receive_frame())
            with ExitStack() as stack:
                _consume(server, client, stack, topic, [f"{topic}-first"], partitions)
                before = _kept(server)
                for lot in range(0, groups, GROUPS_AT_ONCE):
                    names = [f"{topic}-{n}" for n in range(lot, min(groups, lot + GROUPS_AT_ONCE))]
                    _consume(server, client, stack, topic, names, partitions)
                return _kept(server) - before
    finally:
        wire.remove(topic)


def _kept(server: Server) -> int:
    time.sleep(SETTLE_S)
    return server.kept_bytes()


def _consume(
    server: Server,
    client: RawClient,
    stack: ExitStack,
    topic: str,
    groups: list[str],
    partitions: int,
) -> None:
    """Each group consumes the topic by a member whose session stays until `stack` ends."""
    load = QueueLoad(server)
    stack.callback(load.close)
    members = []
    for group, (member_id, places) in _joined(client, topic, groups, partitions).items():
        member = ShareMember(group, member_id, places, BY_DEFAULT)
        load.add(connect(server), member)
        members.append(member)
    load.begin()
    load.run(len(groups) * partitions, CONSUME_S_MAX)
    load.quieten()
    if any(member.acknowledged != partitions for member in members):
        raise PeerError(f"{server.name} has not given each group everything")


def _joined(
    client: RawClient, topic: str, groups: list[str], partitions: int
) -> dict[str, tuple[str, list[Place]]]:
    """One member of each group, and what it was assigned."""
    joining = {}
    for group in groups:
        set_group(client, group, share_auto_offset_reset="earliest")
        joining[group] = Joining(client, group, topic, 1)
    eventually(lambda: coordinator_of(client, groups[0]), JOIN_S_MAX, BEAT_S)
    waiting = list(joining.values())

    def all_have() -> bool:
        waiting[:] = [one for one in waiting if not one.has_all(partitions)]
        return not waiting

    eventually(all_have, JOIN_S_MAX, BEAT_S)
    return {group: next(iter(one.places.items())) for group, one in joining.items()}
