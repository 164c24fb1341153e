"""Offsets that are part of open transactions: committed or forgotten with them.

Until the marker of its transaction comes, an offset is pending: nobody reads it, but it keeps the
partition's committed offset and the group from expiring, and a reader that asks for stable offsets
is told to retry. Several transactions may have a pending offset for one partition. A tombstone of
the partition's offset takes back the pending ones too.

Invariant: `_by_place` and `_by_producer` say the same; neither keeps what is empty.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class OffsetPlace(NamedTuple):
    """What an offset is about."""

    group_id: str
    topic: str
    partition: int


class PendingOffsets(Generic[V]):
    __slots__ = ("_by_place", "_by_producer")

    def __init__(self) -> None:
        self._by_place: dict[str, dict[OffsetPlace, dict[int, V]]] = {}
        """By group, place and producer id."""
        self._by_producer: dict[int, dict[OffsetPlace, None]] = {}

    def put(self, producer_id: int, place: OffsetPlace, offset: V) -> None:
        """The last one that a transaction stores for a place counts."""
        places = self._by_place.setdefault(place.group_id, {})
        places.setdefault(place, {})[producer_id] = offset
        self._by_producer.setdefault(producer_id, {})[place] = None

    def end(self, producer_id: int) -> list[tuple[OffsetPlace, V]]:
        """The producer's transaction has ended: its offsets, which are pending no more."""
        places = self._by_producer.pop(producer_id, {})
        return [(place, self._take(place, producer_id)) for place in places]

    def remove(self, place: OffsetPlace) -> None:
        """Forget what any transaction has stored for the place."""
        for producer_id in list(self._by_place.get(place.group_id, {}).get(place, ())):
            self._take(place, producer_id)
            places = self._by_producer[producer_id]
            del places[place]
            if not places:
                del self._by_producer[producer_id]

    def _take(self, place: OffsetPlace, producer_id: int) -> V:
        places = self._by_place[place.group_id]
        offset = places[place].pop(producer_id)
        if not places[place]:
            del places[place]
        if not places:
            del self._by_place[place.group_id]
        return offset

    # -- questions -----------------------------------------------------------------------------

    def __contains__(self, place: OffsetPlace) -> bool:
        return place in self._by_place.get(place.group_id, {})

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_place

    def group_ids(self) -> list[str]:
        return list(self._by_place)

    def places_of(self, group_id: str) -> list[OffsetPlace]:
        return list(self._by_place.get(group_id, ()))

    def places_in(self, topics: Collection[str]) -> list[OffsetPlace]:
        return [
            place for places in self._by_place.values() for place in places if place.topic in topics
        ]

    def all(self) -> dict[tuple[int, OffsetPlace], V]:
        """Every pending offset; for tests and the simulator."""
        return {
            (producer_id, place): self._by_place[place.group_id][place][producer_id]
            for producer_id, places in self._by_producer.items()
            for place in places
        }
