"""What a door has made of each topic, until it changes: Metadata its encoded pieces.

After a fail-over every client asks for its topics anew, and those that follow patterns ask for all
of them. To encode a topic takes some microseconds for each of its partitions; to send it once more
takes next to nothing. What is said of all topics together is kept as well (`AllTopics`), joined: to
go through a thousand topics takes a millisecond, to copy their bytes a tenth of it.

Invariant: a piece agrees with the served image. Each change of the image is passed to `apply`: it
drops what has changed, and everything when brokers have come or gone, since pieces list which
replicas are offline. Limits: `PIECES_BYTES_MAX` (the least recently used go first) and
`ALL_TOPICS_FORMS_MAX`. Wide answers are made one after the other (`turn`), so that many requests
for them delay others no longer than one does. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, cast

from penstock.base.ids import Uuid
from penstock.metadata.delta import MetadataDelta

PIECES_BYTES_MAX = 32 * 1024 * 1024
"""A hundred thousand partitions with three replicas are 5 MB in each version that clients use."""

ALL_TOPICS_FORMS_MAX = 4
"""Forms in which all topics together are kept: clients of one kind ask in one of them."""

T = TypeVar("T")

Form: TypeAlias = tuple[int, int]
"""The version of an answer, and what it says the client is allowed to do with the topic: so nobody
is told what another one may do.
"""


class AllTopics:
    """The pieces of all topics in one form, as far as they are known."""

    __slots__ = ("_joined", "_pieces")

    def __init__(self) -> None:
        self._pieces: dict[Uuid, Any] = {}
        self._joined: Any = None

    def __contains__(self, topic_id: Uuid) -> bool:
        return topic_id in self._pieces

    @property
    def is_known(self) -> bool:
        """Whether nothing has changed since `joined` was last asked for."""
        return self._joined is not None

    def put(self, topic_id: Uuid, piece: Any) -> None:
        self._pieces[topic_id] = piece

    def drop(self, topic_id: Uuid) -> None:
        self._joined = None
        self._pieces.pop(topic_id, None)

    def forget(self) -> None:
        self._joined = None
        self._pieces.clear()

    def joined(self, join: Callable[[list[Any]], T]) -> T:
        """All of them, for an answer; the caller has put what was missing."""
        if self._joined is None:
            self._joined = join(list(self._pieces.values()))
        return cast(T, self._joined)


class TopicPieces:
    __slots__ = ("_all", "_bytes", "_bytes_max", "_making", "_names", "_topics", "turn")

    def __init__(self, bytes_max: int = PIECES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._topics: OrderedDict[Uuid, dict[Form, tuple[Any, int]]] = OrderedDict()
        self._all: OrderedDict[Form, AllTopics] = OrderedDict()
        self._names: list[str] | None = None
        """Of all topics, sorted, once they have been asked for."""
        self.turn = asyncio.Lock()
        """Held while a wide answer is made."""
        self._making: Uuid | None = None
        """The topic of which the holder of `turn` makes a piece; None as soon as it changes."""

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def get(self, topic_id: Uuid, form: Form) -> Any:
        """What was put for the topic in this form; None if nothing is known."""
        pieces = self._topics.get(topic_id)
        if pieces is None:
            return None
        self._topics.move_to_end(topic_id)
        found = pieces.get(form)
        return None if found is None else found[0]

    def put(self, topic_id: Uuid, form: Form, piece: Any, size: int) -> None:
        """Keep a piece of `size` bytes that `get` did not find."""
        self._topics.setdefault(topic_id, {})[form] = piece, size
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._topics)))

    def begin(self, topic_id: Uuid) -> None:
        """The holder of `turn` begins to make a piece, with others in between."""
        self._making = topic_id

    def end(self, topic_id: Uuid) -> bool:
        """It is made; whether the topic is still what it was."""
        is_same, self._making = self._making == topic_id, None
        return is_same

    def all_topics(self, form: Form) -> AllTopics:
        found = self._all.get(form)
        if found is None:
            found = self._all[form] = AllTopics()
            if len(self._all) > ALL_TOPICS_FORMS_MAX:
                self._all.popitem(last=False)
        self._all.move_to_end(form)
        return found

    def sorted_names(self, topics: Iterable[str]) -> list[str]:
        """`topics`, which are all there are, in order: to sort a hundred thousand takes 0.1 s."""
        if self._names is None:
            self._names = sorted(topics)
        return self._names

    def _sort_in(self, delta: MetadataDelta) -> None:
        names = self._names
        if names is None:
            return
        for topic in delta.deleted_topics.values():
            at = bisect_left(names, topic.name)
            if names[at : at + 1] == [topic.name]:
                del names[at]
        for topic in delta.created_topics.values():
            at = bisect_left(names, topic.name)
            if names[at : at + 1] != [topic.name]:
                names.insert(at, topic.name)

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image."""
        self._sort_in(delta)
        if delta.changed_brokers:
            self._making = None
            self._topics.clear()
            self._bytes = 0
            for all_topics in self._all.values():
                all_topics.forget()
            return
        changed = {id_ for id_, _ in delta.changed_partitions}
        for topic_id in (*delta.created_topics, *delta.deleted_topics, *changed):
            if topic_id == self._making:
                self._making = None
            if topic_id in self._topics:
                self._drop(topic_id)
            for all_topics in self._all.values():
                all_topics.drop(topic_id)

    def _drop(self, topic_id: Uuid) -> None:
        self._bytes -= sum(size for _, size in self._topics.pop(topic_id).values())
