"""What a simulated member keeps of a share session with one node, and what it asks in it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.ids import Uuid
from penstock.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
)
from penstock.wire.messages.share_fetch import AcknowledgementBatch as FetchAcknowledgementBatch
from penstock.wire.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic
from penstock.wire.records import parse_header, read_records

from .share_history import RENEW, Held, SharePlace

OPEN, CLOSE = 0, -1
"""The first and the last epoch of a session."""
Said = Mapping[int, int]
"""Types of acknowledgements, by offset."""


class Intent(NamedTuple):
    """What is to be said of records, and when."""

    due: float
    place: SharePlace
    said: dict[int, int]


@dataclass(eq=False)
class Session:
    """A share session with one node."""

    node_id: int
    epoch: int = OPEN
    named: dict[SharePlace, str] = field(default_factory=dict)
    """The partitions in it, and the names of their topics."""
    hand: dict[SharePlace, dict[int, Held]] = field(default_factory=dict)
    intents: list[Intent] = field(default_factory=list)

    def take(self, now: float) -> dict[SharePlace, dict[int, int]]:
        """What is due to be said, by partition; renewals are said apart."""
        due = [i for i in self.intents if i.due <= now and RENEW not in i.said.values()]
        self.intents = [i for i in self.intents if i not in due]
        found: dict[SharePlace, dict[int, int]] = {}
        for intent in due:
            hand = self.hand.get(intent.place, {})
            said = {offset: kind for offset, kind in intent.said.items() if offset in hand}
            if said:
                found.setdefault(intent.place, {}).update(said)
        return found


def fetch_topics(
    new: Iterable[SharePlace], said: Mapping[SharePlace, Said], rng: random.Random
) -> list[FetchTopic]:
    """What a fetch names: what is new in its session, and what it acknowledges."""
    topics: dict[Uuid, FetchTopic] = {}
    for place in dict.fromkeys((*new, *said)):
        topic = topics.setdefault(place.topic_id, FetchTopic(topic_id=place.topic_id))
        batches = [
            FetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches_of(said.get(place, {}), rng)
        ]
        topic.partitions.append(
            FetchPartition(partition_index=place.partition, acknowledgement_batches=batches)
        )
    return list(topics.values())


def forgotten_topics(gone: Iterable[SharePlace]) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic_id=p.topic_id, partitions=[p.partition]) for p in gone]


def acknowledge_topics(
    said: Mapping[SharePlace, Said], rng: random.Random
) -> list[AcknowledgeTopic]:
    """Each partition by itself, as a request may do."""
    topics = []
    for place, kinds in said.items():
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches_of(kinds, rng)
        ]
        partition = AcknowledgePartition(
            partition_index=place.partition, acknowledgement_batches=batches
        )
        topics.append(AcknowledgeTopic(topic_id=place.topic_id, partitions=[partition]))
    return topics


def batches_of(said: Mapping[int, int], rng: random.Random) -> list[tuple[int, int, list[int]]]:
    """Runs of offsets: with one type for all, or with one for each."""
    runs: list[tuple[int, int, list[int]]] = []
    each = rng.random() < 0.3
    for offset in sorted(said):
        kind = said[offset]
        if runs and runs[-1][1] == offset - 1 and (each or runs[-1][2][0] == kind):
            first, _, types = runs[-1]
            runs[-1] = first, offset, [*types, kind] if each else types
        else:
            runs.append((offset, offset, [kind]))
    return runs


def offsets_in(data: bytes | memoryview) -> set[int]:
    """The offsets of the records in what was read; of control batches none."""
    found: set[int] = set()
    view, position = memoryview(data), 0
    while position < len(view):
        header = parse_header(view, position)
        batch = bytes(view[position : position + header.size])
        if not header.is_control:
            found |= {record.offset for record in read_records(batch)}
        position += header.size
    return found
