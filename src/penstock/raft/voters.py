"""The voter set, and its history along the log.

A voter set is in force from the moment its record is appended, committed or not; when the record
is truncated the one before it is in force again. Sets that follow one another differ by one voter
at most, so that any two majorities share a voter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.raft.types import Endpoint, ReplicaKey

KRAFT_VERSION: Final = 1
"""Voters are records in the log (KIP-853)."""
KRAFT_VERSIONS: Final = (0, 1)

T = TypeVar("T")


class VoterNode(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


class VoterSet:
    """Immutable; ordered by node id, so that all that is done for each voter has one order."""

    __slots__ = ("_by_id",)

    def __init__(self, nodes: Iterable[VoterNode] = ()) -> None:
        self._by_id = {node.key.id: node for node in sorted(nodes)}

    @property
    def nodes(self) -> list[VoterNode]:
        return list(self._by_id.values())

    @property
    def keys(self) -> list[ReplicaKey]:
        return [node.key for node in self._by_id.values()]

    @property
    def majority(self) -> int:
        return len(self._by_id) // 2 + 1

    def node(self, node_id: int) -> VoterNode | None:
        return self._by_id.get(node_id)

    def with_node(self, node: VoterNode) -> VoterSet:
        """With `node` added, or in place of the entry of the same id."""
        return VoterSet({**self._by_id, node.key.id: node}.values())

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(node for node in self._by_id.values() if node.key.id != node_id)

    def __contains__(self, key: object) -> bool:
        """Whether `key`, id and directory id, is a voter."""
        if not isinstance(key, ReplicaKey):
            return False
        node = self._by_id.get(key.id)
        return node is not None and node.key == key

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._by_id.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(tuple(self._by_id.values()))

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(key.id) for key in self.keys)})"


class History(Generic[T]):
    """Values along the log: each is in force from its offset on."""

    __slots__ = ("_offsets", "_values")

    def __init__(self, entries: Iterable[tuple[int, T]] = ()) -> None:
        self._offsets: list[int] = []
        self._values: list[T] = []
        for offset, value in entries:
            self.add(offset, value)

    def add(self, offset: int, value: T) -> None:
        self._offsets.append(offset)
        self._values.append(value)

    @property
    def last(self) -> T | None:
        return self._values[-1] if self._values else None

    @property
    def previous(self) -> T | None:
        """What would be in force without the last one."""
        return self._values[-2] if len(self._values) > 1 else None

    @property
    def last_offset(self) -> int:
        """Where the value in force was appended; -1 when there is none."""
        return self._offsets[-1] if self._offsets else -1

    def before(self, end_offset: int) -> T | None:
        """What the log below `end_offset` says."""
        at = bisect_left(self._offsets, end_offset)
        return self._values[at - 1] if at else None

    def truncate(self, end_offset: int) -> bool:
        """Forget what lies at `end_offset` and beyond; whether anything did."""
        at = bisect_left(self._offsets, end_offset)
        gone = at < len(self._offsets)
        del self._offsets[at:]
        del self._values[at:]
        return gone

    def trim(self, start_offset: int) -> None:
        """Forget what is not needed any more once the log begins at `start_offset`."""
        at = max(bisect_left(self._offsets, start_offset) - 1, 0)
        del self._offsets[:at]
        del self._values[:at]

    def reset(self, offset: int, value: T | None) -> None:
        self._offsets = [] if value is None else [offset]
        self._values = [] if value is None else [value]
