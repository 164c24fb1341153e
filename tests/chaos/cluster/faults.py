"""The faults: each is a plan of whom it hits, how it begins, how long it holds, and how it heals.

`FAULTS` is the table. A fault is made from the nemesis, which knows the cluster and draws all
chances from one seed. A fault that this machine cannot bring about has a reason in `impossible`,
which the run prints; nothing is left out silently.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from support.waiting import eventually

if TYPE_CHECKING:
    from .nemesis import Nemesis

DISK_BYTES = 192 * 1024 * 1024
DISK_BYTES_PER_SECOND = 256 * 1024
"""What a run writes, with room to spare: by itself it must not fill the disk."""
REASSIGN_SECONDS_MAX = 60.0
PREFERRED = 0
CERTIFICATE_SECONDS_MAX = 15.0


class Plan(NamedTuple):
    """One fault to come."""

    victims: tuple[int, ...]
    begin: Callable[[], None]
    heal: Callable[[], None]
    hold: float
    # What a victim says may be old until it has recovered.
    suspect: bool = False
    # Two nodes down refuse writes; the nemesis looks whether they do.
    probe: bool = False
    note: str = ""


def kill(nemesis: Nemesis) -> Plan:
    """kill -9 of one node."""
    return _kill(nemesis, nemesis.any_node())


def kill_leader(nemesis: Nemesis) -> Plan:
    """kill -9 of the node that leads the metadata quorum."""
    return _kill(nemesis, nemesis.cluster.quorum_leader())


def _kill(nemesis: Nemesis, victim: int) -> Plan:
    cluster = nemesis.cluster
    return Plan(
        (victim,),
        lambda: cluster.kill(victim),
        lambda: cluster.start_node(victim),
        nemesis.chance.uniform(0.2, 4.0),
    )


def kill_two(nemesis: Nemesis) -> Plan:
    """kill -9 of two nodes, one soon after the other."""
    cluster = nemesis.cluster
    one, other = nemesis.chance.sample(cluster.running, 2)
    return Plan(
        (one, other),
        lambda: cluster.kill(one, other),
        lambda: cluster.start_node(one, other),
        nemesis.chance.uniform(3.0, 6.0),
        probe=True,
    )


def pause(nemesis: Nemesis) -> Plan:
    """STOP and CONT of one node, also for longer than its session."""
    cluster, victim = nemesis.cluster, nemesis.any_node()
    return Plan(
        (victim,),
        lambda: cluster.pause(victim),
        lambda: cluster.resume(victim),
        nemesis.chance.choice([0.5, 2.0, 9.0]),
        suspect=True,
    )


def cut(nemesis: Nemesis) -> Plan:
    """One node and the others do not hear each other; clients reach all of them."""
    victim = nemesis.any_node()

    def begin() -> None:
        for other in nemesis.others(victim):
            nemesis.network.cut(victim, other)
            nemesis.network.cut(other, victim)

    return _cut(nemesis, victim, begin, "from the others")


def cut_one_way(nemesis: Nemesis) -> Plan:
    """One node hears the others, and they do not hear it; or the other way round."""
    victim, deaf = nemesis.any_node(), nemesis.chance.random() < 0.5

    def begin() -> None:
        for other in nemesis.others(victim):
            nemesis.network.cut(*((other, victim) if deaf else (victim, other)))

    return _cut(nemesis, victim, begin, "deaf" if deaf else "mute")


def cut_link(nemesis: Nemesis) -> Plan:
    """Two nodes do not hear each other; both hear the rest."""
    victim = nemesis.any_node()
    other = nemesis.chance.choice(nemesis.others(victim))

    def begin() -> None:
        nemesis.network.cut(victim, other)
        nemesis.network.cut(other, victim)

    plan = _cut(nemesis, victim, begin, f"from node {other}")
    return plan._replace(victims=(victim, other))


def cut_off(nemesis: Nemesis) -> Plan:
    """One node hears nobody, clients included."""
    victim = nemesis.any_node()

    def begin() -> None:
        for other in nemesis.others(victim):
            nemesis.network.cut(victim, other)
            nemesis.network.cut(other, victim)
        nemesis.network.cut_clients(victim)

    return _cut(nemesis, victim, begin, "from all")


def _cut(nemesis: Nemesis, victim: int, begin: Callable[[], None], note: str) -> Plan:
    hold = nemesis.chance.choice([1.0, 4.0, 9.0])
    return Plan((victim,), begin, nemesis.network.heal, hold, suspect=True, note=note)


def delay(nemesis: Nemesis) -> Plan:
    """What one node sends arrives late."""
    victim, ms = nemesis.any_node(), nemesis.chance.choice([20, 80, 250])
    begin: Callable[[], None] = lambda: nemesis.network.delay(victim, ms, ms // 4)  # noqa: E731
    return Plan((victim,), begin, nemesis.network.heal, 5.0, suspect=True, note=f"{ms} ms")


def loss(nemesis: Nemesis) -> Plan:
    """A part of what one node sends is lost and has to be sent again."""
    victim, percent = nemesis.any_node(), nemesis.chance.choice([2, 10])
    begin: Callable[[], None] = lambda: nemesis.network.loss(victim, percent)  # noqa: E731
    return Plan((victim,), begin, nemesis.network.heal, 5.0, suspect=True, note=f"{percent}%")


def restart(nemesis: Nemesis) -> Plan:
    """A clean stop and a start of one node."""
    cluster, victim = nemesis.cluster, nemesis.any_node()
    return Plan((victim,), lambda: cluster.stop(victim), lambda: cluster.start_node(victim), 0.5)


def rolling(nemesis: Nemesis) -> Plan:
    """A clean restart of every node, one after the other."""
    cluster = nemesis.cluster

    def begin() -> None:
        for node_id in cluster.running:
            cluster.restart(node_id)
            cluster.wait_in_sync()

    return Plan(tuple(cluster.running), begin, lambda: None, 0.0)


def disk(nemesis: Nemesis) -> Plan:
    """The volume of one node is full."""
    victim = nemesis.small_disk
    assert victim is not None
    ballast = nemesis.cluster.nodes[victim].data_dir / "ballast"

    def begin() -> None:
        elect(nemesis).begin()  # so that the victim leads something
        with ballast.open("wb", buffering=0) as out:
            try:
                while out.write(bytes(1 << 20)):
                    pass
            except OSError:
                return

    return Plan((victim,), begin, ballast.unlink, nemesis.chance.uniform(2.0, 6.0))


def reassign(nemesis: Nemesis) -> Plan:
    """Partitions lose a replica, or get it back, or change the order of their replicas."""
    cluster, chance = nemesis.cluster, nemesis.chance
    chosen = chance.sample(nemesis.partitions, max(1, len(nemesis.partitions) // 2))
    all_nodes = sorted(cluster.running)

    def targets(count: int) -> dict[int, list[int]]:
        return {number: chance.sample(all_nodes, count) for _, number in chosen}

    def begin() -> None:
        _reassign(nemesis, targets(2))

    def heal() -> None:
        _reassign(nemesis, targets(3))

    note = f"{len(chosen)} partitions, two replicas and back"
    return Plan((), begin, heal, chance.uniform(0.5, 3.0), note=note)


def _reassign(nemesis: Nemesis, wanted: dict[int, list[int]]) -> None:
    """Asks for the replicas and waits until they are so."""
    cluster, topic = nemesis.cluster, nemesis.partitions[0][0]
    partitions = [
        ReassignablePartition(partition_index=p, replicas=nodes) for p, nodes in wanted.items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )

    def asked() -> bool:
        answer = cluster.ask(request, 0)
        codes = [each.error_code for of_topic in answer.responses for each in of_topic.partitions]
        assert answer.error_code == 0, f"AlterPartitionReassignments answers {answer}"
        assert not any(codes), f"AlterPartitionReassignments answers {answer}"
        return True

    def done() -> bool:
        if cluster.ask(ListPartitionReassignmentsRequest(), 0).topics:
            return False
        states = cluster.partitions(topic)
        return all(set(states[topic, p].replicas) == set(nodes) for p, nodes in wanted.items())

    eventually(asked)
    eventually(done, REASSIGN_SECONDS_MAX)


def elect(nemesis: Nemesis) -> Plan:
    """Every partition goes back to its preferred leader."""
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=10_000)

    def begin() -> None:
        answer = nemesis.cluster.ask(request, 2)
        assert answer.error_code == 0, f"ElectLeaders answers {answer}"

    return Plan((), begin, lambda: None, 0.5)


def worker_kill(nemesis: Nemesis) -> Plan:
    """kill -9 of one transactional worker after the other; each is started anew."""
    workers, chance = nemesis.workers, nemesis.chance
    assert workers is not None
    names = chance.sample(workers.names, len(workers.names))

    def begin() -> None:
        for name in names:
            workers.kill(name)

    return Plan((), begin, lambda: None, chance.uniform(0.5, 3.0))


def worker_zombie(nemesis: Nemesis) -> Plan:
    """A transactional worker stands still, another takes its place, and the first one goes on."""
    workers, chance = nemesis.workers, nemesis.chance
    assert workers is not None
    name = chance.choice(workers.names)
    zombies: list[subprocess.Popen[bytes]] = []

    def heal() -> None:
        for zombie in zombies:
            zombie.send_signal(signal.SIGCONT)

    return Plan(
        (),
        lambda: zombies.append(workers.displace(name)),
        heal,
        chance.choice((2.0, 9.0)),
        note=name,
    )


def certificate(nemesis: Nemesis) -> Plan:
    """A node's certificate is replaced while it runs."""
    lock, victim = nemesis.cluster.lock, nemesis.any_node()
    assert lock is not None

    def heal() -> None:
        eventually(lambda: lock.shows_the_newest(victim), CERTIFICATE_SECONDS_MAX)

    return Plan((victim,), lambda: lock.renew(victim), heal, 0.5)


FAULTS: dict[str, Callable[[Nemesis], Plan]] = {
    "kill": kill,
    "kill-leader": kill_leader,
    "kill-two": kill_two,
    "pause": pause,
    "cut": cut,
    "cut-one-way": cut_one_way,
    "cut-link": cut_link,
    "cut-off": cut_off,
    "delay": delay,
    "loss": loss,
    "restart": restart,
    "rolling": rolling,
    "disk": disk,
    "reassign": reassign,
    "elect": elect,
    "worker-kill": worker_kill,
    "worker-zombie": worker_zombie,
    "certificate": certificate,
}
OF_LOCKS = frozenset({"certificate"})
"""Those that only a locked cluster can have."""


def mount_small_disk(data_dir: Path, seconds: float) -> str | None:
    """Makes a node's data folder a small volume, for a run of so long; the reason when that cannot
    be done.
    """
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "only root can mount a small volume"
    data_dir.mkdir(parents=True, exist_ok=True)
    size = DISK_BYTES + int(seconds * DISK_BYTES_PER_SECOND)
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(data_dir)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no small volume: {done.stderr.strip()}"


def unmount(data_dir: Path) -> None:
    subprocess.run(["umount", "-l", str(data_dir)], check=False, capture_output=True)
