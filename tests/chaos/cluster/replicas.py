"""The log directories of stopped nodes, compared: below the high watermark all copies are equal.

Segments may begin elsewhere on each node, so the copies are compared as one run of batches; every
byte counts, the leader epochs in the batch headers too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from support.batches import HEADER, Head, heads

from .history import Partition

METADATA: Partition = ("__cluster_metadata", 0)


class Copy(NamedTuple):
    """One node's copy of a partition: its batches by base offset, up to `end`."""

    node_id: int
    batches: dict[int, bytes]
    start: int
    end: int


def read_copy(node_id: int, folder: Path) -> Copy:
    """What lies in a partition's folder; a last batch that was cut short does not count."""
    batches: dict[int, bytes] = {}
    start, end = -1, 0
    for path in sorted(folder.glob("*.log")):
        if start < 0:
            start = end = int(path.stem)
        data = path.read_bytes()
        at = 0
        for head in heads(data):
            size = 12 + head.length
            batches[head.base_offset] = data[at : at + size]
            at, end = at + size, head.last_offset + 1
    return Copy(node_id, batches, max(start, 0), end)


def copies(data_dirs: Mapping[int, Path]) -> dict[Partition, list[Copy]]:
    """Every partition that any node holds, with all of its copies."""
    found: dict[Partition, list[Copy]] = {}
    for node_id, root in data_dirs.items():
        for folder in sorted(root.iterdir()):
            topic, _, number = folder.name.rpartition("-")
            if folder.is_dir() and topic and number.isdigit():
                found.setdefault((topic, int(number)), []).append(read_copy(node_id, folder))
    return found


def differences(partition: Partition, found: list[Copy], high_watermark: int) -> Iterator[str]:
    """Where copies differ below the high watermark, and which of them are short of it.

    A copy of the metadata log may be short: a majority of them has what is committed.
    """
    name = f"{partition[0]}-{partition[1]}"
    if not found:
        yield f"{name}: no node has a copy"
        return
    for copy in found:
        if copy.end < high_watermark and partition != METADATA:
            yield f"{name}: node {copy.node_id} ends at {copy.end}, before {high_watermark}"
    low = max(copy.start for copy in found)
    for offset in sorted({base for copy in found for base in copy.batches}):
        if not low <= offset < high_watermark:
            continue
        by_bytes: dict[bytes | None, list[int]] = {}
        for copy in found:
            if partition == METADATA and offset >= copy.end:
                continue
            by_bytes.setdefault(copy.batches.get(offset), []).append(copy.node_id)
        if len(by_bytes) > 1:
            yield f"{name}@{offset}: " + " | ".join(
                f"nodes {nodes} {_short(data)}" for data, nodes in by_bytes.items()
            )


def _short(data: bytes | None) -> str:
    if data is None:
        return "no batch"
    head = Head(*HEADER.unpack_from(data))
    return (
        f"{len(data)} bytes, epoch {head.partition_leader_epoch}, last {head.last_offset}, "
        f"crc {head.crc:08x}"
    )


def compare(data_dirs: Mapping[int, Path], high_watermarks: Mapping[Partition, int]) -> list[str]:
    """All differences of the partitions whose high watermarks are given."""
    found = copies(data_dirs)
    return [
        line
        for partition, high_watermark in high_watermarks.items()
        for line in differences(partition, found.get(partition, []), high_watermark)
    ]


def writers(
    data_dirs: Mapping[int, Path], partitions: list[Partition]
) -> dict[Partition, dict[int, tuple[int, int]]]:
    """The producer id and epoch of every record, from the copy of the first node that has one."""
    found: dict[Partition, dict[int, tuple[int, int]]] = {}
    for topic, number in partitions:
        folders = [root / f"{topic}-{number}" for root in data_dirs.values()]
        folder = next((folder for folder in folders if folder.is_dir()), None)
        of_offset = found.setdefault((topic, number), {})
        for path in sorted(folder.glob("*.log")) if folder is not None else []:
            for head in heads(path.read_bytes()):
                for offset in range(head.base_offset, head.last_offset + 1):
                    of_offset[offset] = (head.producer_id, head.producer_epoch)
    return found
