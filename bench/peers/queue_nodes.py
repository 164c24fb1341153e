"""A queue on three nodes, one of which is killed: how long until messages are given out again.

A writer writes to all partitions, and to each partition belongs a member of one share group that
takes what is there and acknowledges it. Both look for the leader all the time and have no patience,
so that it shows how long the cluster takes. The node that is killed leads partitions, and so many
of the group's states as it happens to; it does not lead the metadata.
"""

from __future__ import annotations

import shutil
import struct
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.cluster import going
from bench.cluster.nodes import address, addresses, prefer_leaders, say
from bench.cluster.writers import NS, STOP_S_MAX, TRY_AGAIN_S, RawWriter, leader_of
from tests.support.raw import RawClient
from tests.support.share_groups import set_group
from tests.support.waiting import eventually

from penstock.kafka.client import Address
from penstock.kafka.connection import Connection

from .cluster import DURABILITY, REPLICATION, Found
from .cluster_nodes import MeasuredCluster
from .goals import KAFKA, Goal
from .queue_wire import BY_DEFAULT
from .share_member import Place, ShareMember
from .share_queue import JOIN_S_MAX, Joining, coordinator_of
from .wire import PeerError
from .workloads import SECONDS, Workload

SECTION = f"queues on three nodes: {REPLICATION}; {DURABILITY}"
KILL = Workload(
    SECTION,
    "queue: kill -9 of a partition leader, until messages of all partitions are given out",
    (SECONDS,),
    copies_in_title=True,
)
WORKLOADS = (KILL,)
GOALS = (Goal(KILL.name, SECONDS, KAFKA, 0.2),)

TOPIC = "queue"
GROUP = "queue-workers"
PARTITIONS = going.PARTITIONS
STEADY_NS = NS // 2

_LENGTH = struct.Struct(">i")


class Given(NamedTuple):
    """That messages of a partition were given out."""

    partition: int
    by: Address
    moment_ns: int


class ShareReader:
    """A member for each partition, with a thread and a connection, from `start` to `stop`. `given`
    is only added to, and may be read while it grows.
    """

    def __init__(self, addresses: list[Address], places: list[Place]) -> None:
        self.given: list[Given] = []
        self._addresses = addresses
        self._sessions: dict[int, list[ShareMember]] = {}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(place,), daemon=True) for place in places
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends, and raises PeerError if a message that was acknowledged was given out again."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_S_MAX)
            if thread.is_alive():
                raise RuntimeError("a reader of a queue does not end")
        for partition, sessions in self._sessions.items():
            check_done(partition, sessions)

    def since(self, moment_ns: int, not_by: Address | None = None) -> dict[int, int]:
        """When messages of each partition were first given out after a moment."""
        first: dict[int, int] = {}
        for partition, by, at_ns in reversed(self.given[:]):
            if at_ns < moment_ns:
                break
            if by != not_by:
                first[partition] = at_ns
        return first

    def _read(self, place: Place) -> None:
        while not self._stopping.is_set():
            with suppress(OSError, PeerError):
                connection = leader_of(self._addresses, TOPIC, place.partition)
                if connection is not None:
                    with connection:
                        self._session(connection, place)
            time.sleep(TRY_AGAIN_S)

    def _session(self, connection: Connection, place: Place) -> None:
        """Takes and acknowledges until something goes wrong."""
        member = ShareMember(GROUP, str(uuid.uuid4()), [place], BY_DEFAULT)
        self._sessions.setdefault(place.partition, []).append(member)
        request: bytes | bytearray = member.first
        while not self._stopping.is_set():
            connection.send_frame(request)
            answer = connection.receive_frame()
            messages, reply = member.received(memoryview(_LENGTH.pack(len(answer)) + answer))
            if messages:
                now_ns = time.perf_counter_ns()
                self.given.append(Given(place.partition, connection.address, now_ns))
            if reply is None:
                raise PeerError("a member of a share group was given an answer that is not whole")
            request = reply


def check_done(partition: int, sessions: list[ShareMember]) -> None:
    """What was acknowledged in one session is not given out in a later one."""
    done: set[int] = set()
    for member in sessions:
        offsets = [n for d in member.delivered for n in range(d.first, d.last + 1)]
        if again := done.intersection(offsets):
            raise PeerError(
                f"{len(again)} messages of partition {partition} were acknowledged and given out"
                f" again, such as {min(again)}"
            )
        done.update(offsets[: member.acknowledged])


def measure(kind: str, folder: Path, _seconds: float) -> Found:
    """One kill of one kind of cluster. What it wrote below `folder` is removed."""
    root = folder / f"{kind}-queue-cluster"
    try:
        with MeasuredCluster(kind, root) as cluster:
            try:
                cluster.start_timed()
                return {KILL.name: {SECONDS.key: _kill(cluster)}}
            except BaseException:
                say(cluster.log_tails())
                raise
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _kill(cluster: MeasuredCluster) -> float:
    """The seconds until all partitions go on. What a partition's dead leader had sent before is
    not counted.
    """
    cluster.make_topic(TOPIC, PARTITIONS)
    prefer_leaders(cluster, TOPIC)
    reader = ShareReader(addresses(cluster), _places(cluster))
    writer = RawWriter(addresses(cluster), TOPIC, PARTITIONS, going.PER_SECOND)
    writer.start()
    reader.start()
    try:
        going.await_true(
            lambda: (
                len(reader.given) > going.WARM_UP_ACKS
                and len(reader.since(time.perf_counter_ns() - STEADY_NS)) == PARTITIONS
            ),
            "the queue does not come to rest",
        )
        victim = going.partition_leader(cluster, 0)
        dead = address(cluster, victim)
        moment_ns = time.perf_counter_ns()
        cluster.kill(victim)
        going.await_true(
            lambda: len(reader.since(moment_ns, dead)) == PARTITIONS, "the queue does not go on"
        )
        pause_s = (max(reader.since(moment_ns, dead).values()) - moment_ns) / NS
    finally:
        writer.stop()
        reader.stop()
    return pause_s


def _places(cluster: MeasuredCluster) -> list[Place]:
    """The partitions, once the group has all of them: a member has joined."""
    with _coordinator(cluster) as client:
        set_group(client, GROUP, share_auto_offset_reset="earliest")
        joining = Joining(client, GROUP, TOPIC, 1)
        eventually(lambda: joining.has_all(PARTITIONS), JOIN_S_MAX)
    [places] = joining.places.values()
    return places


def _coordinator(cluster: MeasuredCluster) -> RawClient:
    """A connection to the group's coordinator."""
    with RawClient(*addresses(cluster)[0]) as client:
        found = eventually(lambda: coordinator_of(client, GROUP), JOIN_S_MAX)
    assert found is not None
    return RawClient(*found)
