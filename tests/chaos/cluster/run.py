"""One run: a cluster, its clients, the nemesis, and the judgement at the end.

`run` owns everything and leaves nothing behind but the folder it was given, in which it puts the
history when something was violated. The last part of a run is without faults: writers stop, readers
reach the end, everything is read anew, the nodes stop cleanly, and their folders are compared.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from support.cluster import Cluster
from support.cluster_locked import Lock
from support.helpers import QUIET
from support.share_groups import set_group
from support.waiting import eventually

from .acl_churn import AclChurn
from .auditor import Auditor
from .checker import Violation, check
from .faults import FAULTS, OF_LOCKS, mount_small_disk, unmount
from .history import Acked, Failed, History, Partition, Recorder, Settled, Trouble
from .nemesis import Nemesis
from .network import choose
from .replicas import METADATA, compare, writers
from .report import percentile, table
from .share_checker import DELIVERIES_MAX, DONE
from .share_clients import SHARE_GROUP, ShareClient
from .transactions import Transactions, committed_offsets, read_committed
from .workload import Plan, ReaderClient, Workload

WARM_UP_ACKS = 50
LIVE_EVERY_SECONDS = 1.0
READ_SECONDS_MAX = 60.0
OFFSETS_TOPIC = "__consumer_offsets"
# The cleaner works on each node by itself, so compacted copies may rightly differ.
SETTINGS = {
    "log.cleaner.enable": "false",
    "share.coordinator.state.topic.num.partitions": "3",
}
SHARE_SETTINGS = {
    "share_auto_offset_reset": "earliest",
    "share_delivery_count_limit": str(DELIVERIES_MAX),
}
SHARE_SECONDS_MAX = 60.0
"""For a share group to finish what is there: locks of members that were cut off run out first."""
HISTORY = "history.jsonl"
ALARM = re.compile(r"Traceback|InvariantError|invariant|ERROR .* is truncated", re.IGNORECASE)


class Options(NamedTuple):
    """What to run."""

    seconds: float
    seed: int
    faults: tuple[str, ...] = tuple(FAULTS)
    nodes: int = 3
    kind: str = "penstock"
    network: str = "auto"
    plan: Plan = Plan()
    live: bool = False
    locked: bool = False
    """Everything needs a login, and rights."""


SILENT_MAX = 5
"""Faults in a row before which no node answers, for half a minute each, though all has healed."""


class Outcome(NamedTuple):
    """What became of it."""

    history: History
    violations: list[Violation]
    text: str


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(options: Options, root: Path) -> Outcome:
    """The whole of it; the caller looks at the violations."""
    network, why = choose(set(options.faults), options.network)
    say(f"seed {options.seed}; network: {why}")
    settings = {
        "share.coordinator.state.topic.replication.factor": str(min(3, options.nodes)),
        "share.coordinator.state.topic.min.isr": str(min(2, options.nodes)),
        **(SETTINGS if options.kind == "penstock" else {}),
    }
    lock = Lock(root / "lock") if options.locked else None
    cluster = Cluster(options.nodes, root, settings, kind=options.kind, network=network, lock=lock)
    recorder = Recorder()
    nemesis = Nemesis(cluster, network, options.plan.all(), recorder, options.seed)
    names = [name for name in options.faults if options.locked or name not in OF_LOCKS]
    try:
        with _small_disk(options, cluster, nemesis, names), cluster:
            plan = options.plan
            if lock is not None:
                lock.let_in(cluster.admin())
            cluster.make_topic(plan.topic, plan.partitions)
            cluster.make_topic(plan.target, plan.target_partitions)
            with cluster.raw(min(cluster.nodes)) as client:
                set_group(client, SHARE_GROUP, **SHARE_SETTINGS)
            violations = _under_faults(options, cluster, nemesis, names, root)
            history, ends = _settle(cluster, recorder, plan)
            cluster.stop_all()
            dirs = {node.node_id: node.data_dir for node in cluster.nodes.values()}
            history = history._replace(writers=writers(dirs, options.plan.all()))
            violations += [*check(history), *_alarms(cluster)]
            if options.kind == "penstock":
                violations += [Violation("copies differ", line) for line in compare(dirs, ends)]
    except BaseException:
        recorder.save(root / HISTORY)
        raise
    if violations:
        recorder.save(root / HISTORY)
        say(f"the history is in {root / HISTORY}")
    return Outcome(history, violations, table(history, violations))


@contextlib.contextmanager
def _small_disk(
    options: Options, cluster: Cluster, nemesis: Nemesis, names: list[str]
) -> Iterator[None]:
    """A small volume for one node when its disk shall get full; without one, it is said."""
    if "disk" not in names:
        yield
        return
    victim = max(cluster.nodes)
    data_dir = cluster.nodes[victim].data_dir
    reason = mount_small_disk(data_dir, options.seconds)
    if reason is not None:
        say(f"no fault `disk` in this run: {reason}")
        names.remove("disk")
        yield
        return
    nemesis.small_disk = victim
    try:
        yield
    finally:
        unmount(data_dir)


def _under_faults(
    options: Options, cluster: Cluster, nemesis: Nemesis, names: list[str], root: Path
) -> list[Violation]:
    """Clients at work while the nemesis strikes, for as long as was asked; then writing ends."""
    recorder = nemesis.recorder
    copies = min(3, options.nodes)
    workload = Workload(cluster.client, options.plan, recorder, copies)
    addresses = {node.node_id: (node.host, node.port) for node in cluster.nodes.values()}
    auditor = Auditor(addresses, nemesis.suspects, options.plan, recorder, cluster.connect)
    churn = AclChurn(cluster, recorder)
    died: list[Violation] = []
    sharing = [
        ShareClient(f"share-{i}", cluster.client, options.plan.topic, recorder)
        for i in range(options.plan.share_members)
    ]
    transactions = Transactions(cluster, options.plan, recorder, root)
    nemesis.workers = transactions.workers
    with _live(options, recorder, nemesis), transactions:
        workload.start()
        auditor.start()
        for member in sharing:
            member.start()
        if options.locked:
            churn.start()
        transactions.start()
        eventually(lambda: recorder.count(Acked) > WARM_UP_ACKS)
        until = recorder.now() + options.seconds
        silent = 0
        for name in nemesis.order(names):
            if recorder.now() >= until:
                break
            silent = 0 if nemesis.strike(name) else silent + 1
            died += _died(cluster)
            if died:
                break
            assert silent < SILENT_MAX, f"no node answered before {silent} faults, though all heals"
        churn.stopping.set()
        workload.stop_writing()
        _read_to_the_end(cluster, workload, recorder)
        workload.stop_reading()
        _finish_sharing(sharing, _ends(cluster, options.plan.all()), recorder)
        transactions.finish(_ends(cluster, options.plan.all()))
        auditor.stopping.set()
        auditor.join_in_time()
        if options.locked:
            churn.join_in_time()
    return died


def _died(cluster: Cluster) -> list[Violation]:
    """Nodes that nobody has killed and that are gone; without them nothing more can be learnt."""
    return [
        Violation("a node died", f"node {node.node_id}: {node.log_tail()[-1500:]}")
        for node in cluster.nodes.values()
        if not node.running
    ]


def _read_to_the_end(cluster: Cluster, workload: Workload, recorder: Recorder) -> None:
    """Waits until the readers have read what is there."""
    ends = _ends(cluster, workload.plan.all())
    for reader in workload.readers:
        try:
            eventually(functools.partial(_has_read, reader, ends), READ_SECONDS_MAX)
        except AssertionError:
            text = f"{reader.name} is at {reader.positions}, the logs end at {ends}"
            recorder.add(Trouble(recorder.now(), reader.name, text))


def _has_read(reader: ReaderClient, ends: dict[Partition, int]) -> bool:
    return all(reader.positions[p] >= end for p, end in ends.items())


def _finish_sharing(
    sharing: list[ShareClient], ends: dict[Partition, int], recorder: Recorder
) -> None:
    """Waits until the share group has finished what is there, or long enough; the check says what
    is missing.
    """
    wanted = sum(ends.values())

    def finished() -> bool:
        said = [s for s in recorder.events[Settled] if s.kind in DONE]
        return len({(s.partition, s.offset) for s in said}) >= wanted

    with contextlib.suppress(AssertionError):
        eventually(lambda: not sharing or finished(), SHARE_SECONDS_MAX, every=0.2)
    for member in sharing:
        member.stopping.set()
    for member in sharing:
        member.join_in_time()


def _ends(cluster: Cluster, partitions: list[Partition]) -> dict[Partition, int]:
    client = _consumer(cluster)
    try:
        return {
            p: client.get_watermark_offsets(TopicPartition(*p), timeout=READ_SECONDS_MAX)[1]
            for p in partitions
        }
    finally:
        client.close()


def _consumer(cluster: Cluster) -> Consumer:
    settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer({**cluster.client, **settings, **QUIET})


def _settle(
    cluster: Cluster, recorder: Recorder, plan: Plan
) -> tuple[History, dict[Partition, int]]:
    """Everything in sync; what is stored, what exists, and the high watermarks to compare to."""
    cluster.wait_in_sync(seconds=READ_SECONDS_MAX)
    states = cluster.partitions()
    ends = _ends(cluster, list(states))
    final = {p: _read_all(cluster, p, ends[p]) for p in plan.all()}
    ends[METADATA] = cluster.metadata_high_watermark()
    topics = frozenset(topic for topic, _ in states)
    history = History(recorder.events, final, topics, tuple(plan.all()))
    return history._replace(
        committed={p: read_committed(cluster, p) for p in plan.targets()},
        chained=committed_offsets(cluster, plan.all()),
    ), ends


def _read_all(cluster: Cluster, partition: Partition, end: int) -> list[tuple[int, str]]:
    """A partition from its beginning to its end."""
    client = _consumer(cluster)
    found: list[tuple[int, str]] = []
    client.assign([TopicPartition(*partition, 0)])

    def complete() -> bool:
        for message in client.consume(1000, timeout=0.2):
            error = message.error()
            assert error is None or error.code() != KafkaError._FATAL, error
            if error is None:
                found.append((message.offset() or 0, (message.value() or b"").decode()))
        return bool(end == 0 or (found and found[-1][0] >= end - 1))

    eventually(complete, READ_SECONDS_MAX, every=0)
    client.close()
    return found


def _alarms(cluster: Cluster) -> list[Violation]:
    """What nodes have written to their logs that no fault excuses."""
    found = []
    for node in cluster.nodes.values():
        text = node.log_path.read_text(errors="replace")
        lines = [line for line in text.splitlines() if ALARM.search(line)]
        for line in dict.fromkeys(lines):
            found.append(Violation("an alarm", f"node {node.node_id}: {line[:300]}"))
    return found


@contextlib.contextmanager
def _live(options: Options, recorder: Recorder, nemesis: Nemesis) -> Iterator[None]:
    """A line that is written over once a second, when a person watches."""
    done = threading.Event()

    def show() -> None:
        started = recorder.now()
        while not done.wait(LIVE_EVERY_SECONDS):
            acks = recorder.events[Acked]
            recent = [a.at - a.called for a in acks[-500:]]
            line = (
                f"{recorder.now() - started:6.0f} s  {len(acks):>8} acked "
                f"{recorder.count(Failed):>4} failed  p99 {percentile(recent, 0.99) * 1000:6.0f} ms"
                f"  {nemesis.doing}"
            )
            sys.stdout.write(f"\r{line[:118]:<118}")
            sys.stdout.flush()
        sys.stdout.write("\n")

    thread = threading.Thread(target=show, daemon=True)
    if options.live:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if options.live:
            thread.join()


def random_seed() -> int:
    return random.randrange(1 << 32)
