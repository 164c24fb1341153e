"""A shard of the share coordinator with a clock and a log that can be pruned around it.

Requests and answers go through their encoding in the version of the caller, so that nothing is
accepted here that could not travel. After every step the shard must keep its invariants and equal
the one that is built from what is left of its log.
"""

from __future__ import annotations

from typing import Any

from penstock.base.ids import Uuid
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects
from penstock.coordinator.share_state import PruneTo, ShareStateConfig, ShareStateShard
from penstock.coordinator.share_state.answers import request_of
from penstock.coordinator.share_state.config import Environment
from penstock.wire.messages import delete_share_group_state as delete
from penstock.wire.messages import initialize_share_group_state as initialize
from penstock.wire.messages import read_share_group_state as read
from penstock.wire.messages import read_share_group_state_summary as summary
from penstock.wire.messages import write_share_group_state as write
from penstock.wire.schema import Message

PARTITIONS = 3
VERSIONS = {
    initialize.InitializeShareGroupStateRequest: 0,
    read.ReadShareGroupStateRequest: 0,
    write.WriteShareGroupStateRequest: 1,
    delete.DeleteShareGroupStateRequest: 0,
    summary.ReadShareGroupStateSummaryRequest: 1,
}


def topic_id(name: str) -> Uuid:
    """The id of the topic that tests call so."""
    return name.encode().rjust(16, b"\0")


class Rig:
    def __init__(self, **config: Any) -> None:
        self.config = ShareStateConfig(**config)
        self.topics = {topic_id(name): PARTITIONS for name in "abc"}
        self.now = 0
        self.log: list[CoordinatorRecord] = []
        self.log_start = 0
        self.shard = self._new()

    def _new(self) -> ShareStateShard:
        return ShareStateShard(Environment(self.config, lambda id_: self.topics.get(id_, 0)))

    # -- events --------------------------------------------------------------------------------

    def send(self, request: Message, version: int | None = None) -> tuple[Any, Effects]:
        """The answer and everything else."""
        version = VERSIONS[type(request)] if version is None else version
        decoded = type(request).decode(request.encode(version), version)
        effects = self.apply(self.shard.handle(decoded, Caller(1, version, "", ""), self.now))
        [reply] = effects.replies
        response = reply.response
        return type(response).decode(response.encode(version), version), effects

    def ask(
        self, kind: type[Message], topic: str, named: Any, group: str = "g"
    ) -> tuple[Any, Effects]:
        """The result for one share-partition, and everything else."""
        answer, effects = self.send(request_of(kind, group, {topic_id(topic): [named]}))
        [of_topic] = answer.results
        [result] = of_topic.partitions
        assert (of_topic.topic_id, result.partition) == (topic_id(topic), named.partition)
        return result, effects

    def apply(self, effects: Effects) -> Effects:
        for record in effects.records:
            self.shard.placed(*record, self.log_end)
            self.log.append(record)
        for action in effects.actions:
            assert isinstance(action, PruneTo)
            assert action.offset <= self.log_end
            if action.offset > self.log_start:
                del self.log[: action.offset - self.log_start]
                self.log_start = action.offset
        self.shard.invariants()
        replayed = self.replayed()
        assert replayed.states == self.shard.states
        assert replayed.offsets == self.shard.offsets
        return effects

    @property
    def log_end(self) -> int:
        return self.log_start + len(self.log)

    def prune(self) -> Effects:
        return self.apply(self.shard.prune(self.now))

    def snapshot_cold(self) -> Effects:
        return self.apply(self.shard.snapshot_cold(self.now))

    def delete_topic(self, name: str, *, told: bool = True) -> Effects:
        del self.topics[topic_id(name)]
        return self.apply(self.shard.forget_topics({topic_id(name)})) if told else Effects()

    def replayed(self) -> ShareStateShard:
        """A shard that is built from what is left of the log."""
        shard = self._new()
        for offset, (key, value) in enumerate(self.log, self.log_start):
            shard.replay(key, value, self.now, None)
            shard.placed(key, value, offset)
        return shard

    def crash(self, lost: int = 0) -> Effects:
        """The next coordinator takes over; so many of the last records were never committed."""
        assert lost <= len(self.log)
        del self.log[len(self.log) - lost :]
        self.shard = self.replayed()
        return self.apply(self.shard.loaded(self.now))
