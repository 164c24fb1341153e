"""Looks into the nodes while they run and holds what no client can see.

* One quorum leader per epoch; a machine's epoch never goes back, not even over a loss of power.
* The quorum's high watermark never goes back within a process; what lies below it is the same on
  every node, for ever.
* One leader per partition and leader epoch.
* A leader's log start is never above its high watermark, and retention by size leaves a leader as
  much as it was told to.
* In the end all nodes have the same metadata, and all replicas of a partition are equal, byte by
  byte, below the high watermark; those of a compacted one in what compaction has to keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

from penstock.metadata.records import MetadataRecord
from penstock.metadata.snapshot import snapshot_records
from penstock.partitions.leadership import Role
from penstock.partitions.partition import Partition
from penstock.wire.records import parse_header, read_records

from .checks import holds
from .cluster import Machine, World


class Observer:
    def __init__(self, world: World) -> None:
        self._world = world
        self.quorum_leaders: dict[int, int] = {}
        self.partition_leaders: dict[tuple[bytes, int, int], int] = {}
        self._epochs: dict[int, tuple[str, int]] = {}
        self._watermarks: dict[str, int] = {}
        self._committed: dict[int, tuple[int, str]] = {}
        """The committed metadata batches: by base offset, the checksum and who had it first."""
        self._looked: dict[str, int] = {}
        self.retention_bytes: dict[str, int] = {}
        """Of topics whose oldest segments go by size alone."""
        self.compacted: set[str] = set()
        self._starts: dict[tuple[str, bytes, int, int], int] = {}

    # -- at every look -------------------------------------------------------------------------

    def look(self) -> None:
        for machine in self._world.machines.values():
            quorum = _quorum(machine)
            if quorum is not None:
                self._look_at_quorum(machine, quorum)
            if machine.serving:
                self._look_at_partitions(machine)

    def _look_at_quorum(self, machine: Machine, quorum: Any) -> None:
        assert machine.process is not None
        me, epoch = quorum.me.id, quorum.epoch
        if quorum.is_leader:
            leader = self.quorum_leaders.setdefault(epoch, me)
            holds(leader == me, f"nodes {leader} and {me} both lead the quorum in epoch {epoch}")
        directory = quorum.me.directory_id.hex()
        known, before = self._epochs.get(machine.id, (directory, -1))
        holds(
            known != directory or epoch >= before,
            f"{machine.name}: the quorum's epoch went from {before} back to {epoch}",
        )
        self._epochs[machine.id] = (directory, epoch)
        run, watermark = machine.process.name, quorum.high_watermark
        before = self._watermarks.get(run, -1)
        holds(
            watermark >= before,
            f"{run}: the quorum's high watermark went from {before} back to {watermark}",
        )
        self._watermarks[run] = watermark
        self._look_at_committed(machine, run, watermark)

    def _look_at_committed(self, machine: Machine, run: str, watermark: int) -> None:
        log = _driver(machine).log
        first = max(self._looked.get(run, 0), log.log.log_start_offset)
        # A snapshot that is being installed moves the watermark before it moves the log.
        watermark = min(watermark, log.end_offset)
        if first >= watermark:
            return
        for header, batch in log.batches(first, watermark):
            if header.last_offset >= watermark:
                break
            crc = crc32(batch)
            known, who = self._committed.setdefault(header.base_offset, (crc, run))
            holds(
                known == crc,
                f"committed metadata at {header.base_offset} is not the same on {run} and {who}",
            )
            first = header.last_offset + 1
        self._looked[run] = first

    def _look_at_partitions(self, machine: Machine) -> None:
        for partition in partitions_of(machine):
            if partition.role is Role.LEADER:
                key = (partition.topic_id, partition.index, partition.leader_epoch)
                leader = self.partition_leaders.setdefault(key, machine.id)
                holds(
                    leader == machine.id,
                    f"nodes {leader} and {machine.id} both lead {partition.topic}-"
                    f"{partition.index} in epoch {partition.leader_epoch}",
                )
                self._look_at_log_start(machine, partition)

    def _look_at_log_start(self, machine: Machine, partition: Partition) -> None:
        assert machine.process is not None
        start, name = partition.log.log_start_offset, f"{partition.topic}-{partition.index}"
        holds(
            start <= partition.high_watermark,
            f"{machine.name} leads {name} from {start}, above its high watermark "
            f"{partition.high_watermark}",
        )
        # In one epoch a leader's log is cut by nothing but retention.
        run = machine.process.name
        key = run, partition.topic_id, partition.index, partition.leader_epoch
        before = self._starts.setdefault(key, start)
        self._starts[key] = start
        kept, size = self.retention_bytes.get(partition.topic), partition.log.size_bytes
        holds(
            start >= before,
            f"{run}: the log start of {name} went from {before} back to {start}",
        )
        holds(
            kept is None or start == before or size >= kept,
            f"{run}: retention has left {name} {size} bytes of {kept}",
        )

    # -- in the end ----------------------------------------------------------------------------

    def out_of_sync(self) -> str:
        """What is not in sync, as the node with the newest metadata knows it; empty for nothing."""
        images = [
            _driver(m).metadata for m in self._world.machines.values() if _quorum(m) is not None
        ]
        if not images:
            return "there is no node"
        newest = max(images, key=lambda committed: committed.applied_offset)
        bad = [
            f"{topic.name}-{i}: leader {p.leader}, isr {p.isr} of {p.replicas}"
            for topic in newest.image.topics.values()
            for i, p in enumerate(topic.partitions)
            if p.leader < 0 or len(p.isr) < len(p.replicas) or p.adding or p.removing
        ]
        return "; ".join(bad)

    def unequal(self) -> str:
        """Replicas that have not all the leader has, or not told as committed; empty for none."""
        for name, index, replicas in self.by_partition():
            ends = {m: (p.log.log_end_offset, p.high_watermark) for m, p in replicas.items()}
            if len(set(ends.values())) > 1 or any(end != hw for end, hw in ends.values()):
                return f"{name}-{index}: {ends}"
        return ""

    def check_replicas(self) -> None:
        """All replicas of all partitions hold the same bytes, or the same of what must be kept, and
        know the leader epoch of each batch.
        """
        for name, index, replicas in self.by_partition():
            for machine, partition in replicas.items():
                _check_epochs(f"{name}-{index} of node {machine}", partition)
            if name in self.compacted:
                self._check_compacted(f"{name}-{index}", replicas)
                continue
            contents = {machine: _content(p) for machine, p in replicas.items()}
            start = max(first for first, _ in contents.values())
            cut = {m: [b for b in batches if b[0] >= start] for m, (_, batches) in contents.items()}
            [reference, *others] = cut.items()
            for machine, batches in others:
                holds(
                    batches == reference[1],
                    f"{name}-{index}: node {machine} and node {reference[0]} hold different data: "
                    f"{_first_difference(batches, reference[1])}",
                )

    def _check_compacted(self, name: str, replicas: dict[int, Partition]) -> None:
        """The last record of every key is the same everywhere, and no offset has two records."""
        records: dict[int, tuple[bytes | None, bytes | None]] = {}
        last: dict[int, dict[bytes | None, int]] = {}
        for machine, partition in replicas.items():
            latest = last[machine] = {}
            for batch in committed_batches(partition):
                for record in [] if parse_header(batch).is_control else read_records(batch):
                    said = record.key, record.value
                    known = records.setdefault(record.offset, said)
                    holds(
                        known == said, f"{name}@{record.offset} is {known} and {said} on {machine}"
                    )
                    latest[record.key] = record.offset
        kept = {
            machine: {key: at for key, at in latest.items() if records[at][1] is not None}
            for machine, latest in last.items()
        }
        [(first, reference), *others] = kept.items()
        for machine, latest in others:
            holds(
                latest == reference,
                f"{name}: node {machine} and node {first} keep different records: "
                f"{sorted(latest.items() ^ reference.items())[:4]}",
            )

    def images_apart(self) -> str:
        """Nodes that have not applied the same metadata yet; empty when all have."""
        applied = {
            m.name: _driver(m).metadata.applied_offset
            for m in self._world.machines.values()
            if _quorum(m) is not None
        }
        return "" if len(set(applied.values())) == 1 else f"applied metadata: {applied}"

    def check_images(self) -> None:
        """What the nodes serve from is the same, whether they read the log or a snapshot."""
        images = {
            m.name: sorted(_text(r) for r in snapshot_records(_driver(m).metadata.image.frozen()))
            for m in self._world.machines.values()
        }
        [(name, reference), *others] = images.items()
        for other, image in others:
            apart = [text for text in image + reference if (text in image) != (text in reference)]
            holds(not apart, f"{name} and {other} have different metadata: {apart[:4]}")

    def by_partition(self) -> Iterator[tuple[str, int, dict[int, Partition]]]:
        found: dict[tuple[str, int], dict[int, Partition]] = {}
        for machine in self._world.machines.values():
            for partition in partitions_of(machine):
                key = (partition.topic, partition.index)
                found.setdefault(key, {})[machine.id] = partition
        for (name, index), replicas in sorted(found.items()):
            yield name, index, replicas


def _text(record: MetadataRecord) -> str:
    fields = [getattr(record, field.name) for field in record.FIELDS]
    # An enumeration and its number are the same on the wire.
    plain = [int(value) if isinstance(value, int) else value for value in fields]
    return f"{type(record).__name__} {plain}"


def _driver(machine: Machine) -> Any:
    return machine.node._quorum  # type: ignore[union-attr]


def _quorum(machine: Machine) -> Any:
    """The quorum's core on a machine, when it takes part."""
    if machine.node is None or machine.node._quorum is None:
        return None
    driver = machine.node._quorum
    # While it waits for the disk the core is ahead of what anybody knows, and may never be heard.
    acts = driver.has_started and driver.failure is None and not driver._busy
    return driver.quorum if acts else None


def partitions_of(machine: Machine) -> list[Partition]:
    if machine.node is None or machine.node._broker is None:
        return []
    return list(machine.node._broker.replicas.open_partitions())


def _check_epochs(name: str, partition: Partition) -> None:
    for batch in committed_batches(partition):
        header = parse_header(batch)
        # The log may start within a batch, and knows nothing of what comes before.
        first = max(header.base_offset, partition.log.log_start_offset)
        known = partition.log.epochs.epoch_for_offset(first)
        holds(
            known == header.partition_leader_epoch,
            f"{name} takes offset {first} for one of epoch {known}, and it is of "
            f"{header.partition_leader_epoch}",
        )


def _content(partition: Partition) -> tuple[int, list[tuple[int, int]]]:
    """Where the log starts, and each batch's offset and checksum below the high watermark."""
    batches = [(parse_header(b).base_offset, crc32(b)) for b in committed_batches(partition)]
    return partition.log.log_start_offset, batches


def committed_batches(partition: Partition, offset: int = 0) -> Iterator[bytes]:
    """What a replica holds below its high watermark, from the batch with `offset` on."""
    log = partition.log
    offset = max(offset, log.log_start_offset)
    while offset < partition.high_watermark:
        found = log.read(offset, 1 << 20, up_to_offset=partition.high_watermark)
        if found is None:
            break
        data, position = memoryview(found.read()), 0
        holds(len(data) > 0, f"{log.name} has nothing at offset {offset}, which is committed")
        while position < len(data):
            header = parse_header(data, position)
            yield bytes(data[position : position + header.size])
            position += header.size
            offset = header.last_offset + 1


def _first_difference(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> str:
    for one, other in zip(a, b, strict=False):
        if one != other:
            return f"{one} and {other}"
    return f"{len(a)} and {len(b)} batches"
