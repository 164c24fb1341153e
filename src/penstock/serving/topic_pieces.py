"""What Metadata answers say of each topic, encoded, until it changes.

After a fail-over every client asks for its topics anew, and those that follow patterns ask for all
of them. To encode a topic takes some microseconds for each of its partitions; to send it once more
takes next to nothing.

Invariant: a piece says what the served image says. Who changes the image says so (`apply`): what
was changed goes, and all of it when brokers have come or gone, as pieces tell which replicas are
offline. Limit: `PIECES_BYTES_MAX`, of which those go first that nobody has asked for the longest.
Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from penstock.base.ids import Uuid
from penstock.metadata.delta import MetadataDelta
from penstock.wire.messages.metadata import MetadataResponseTopic
from penstock.wire.pieces import piece_bytes

PIECES_BYTES_MAX = 32 * 1024 * 1024
"""A hundred thousand partitions with three replicas are 5 MB in each version that clients use."""

Form: TypeAlias = tuple[int, bool]
"""The version of an answer, and whether it tells what a client is allowed to do."""


class TopicPieces:
    __slots__ = ("_bytes", "_bytes_max", "_topics")

    def __init__(self, bytes_max: int = PIECES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._topics: OrderedDict[Uuid, dict[Form, MetadataResponseTopic]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def get(self, topic_id: Uuid, form: Form) -> MetadataResponseTopic | None:
        pieces = self._topics.get(topic_id)
        if pieces is None:
            return None
        self._topics.move_to_end(topic_id)
        return pieces.get(form)

    def put(self, topic_id: Uuid, form: Form, piece: MetadataResponseTopic) -> None:
        """Keep a piece that `get` did not find."""
        self._topics.setdefault(topic_id, {})[form] = piece
        self._bytes += piece_bytes(piece)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._topics)))

    def apply(self, delta: MetadataDelta) -> None:
        """The image has changed as `delta` says."""
        if delta.changed_brokers:
            self._topics.clear()
            self._bytes = 0
            return
        for topic_id in (*delta.deleted_topics, *{id_ for id_, _ in delta.changed_partitions}):
            if topic_id in self._topics:
                self._drop(topic_id)

    def _drop(self, topic_id: Uuid) -> None:
        self._bytes -= sum(map(piece_bytes, self._topics.pop(topic_id).values()))
