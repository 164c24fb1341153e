"""Internal topics of streams groups, created for the member that was told they are missing.

Duty: after a heartbeat whose answer says so, ask the active controller for the topics that the
group waits for, with the rights of the member, and add to the answer what stands against it. The
answer does not wait for the topics: the next heartbeat finds them.

A topic is asked for once at a time. One that was refused is asked for again after two heartbeat
intervals; until then the answers name the reason. Of refusals the last `REFUSALS_MAX` are kept.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.streams_group.resolving import ResolvedTopic, StatusCode
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from penstock.auth.principal import Principal
    from penstock.base.clock import Clock
    from penstock.coordinating.group_coordinator import GroupCoordinator
    from penstock.serving.rights import Rights
    from penstock.serving.topics import TopicService

REFUSALS_MAX: Final = 1_000
RETRY_HEARTBEATS: Final = 2
"""A refused topic is left alone for so many heartbeat intervals of its group."""
REASONS_MAX: Final = 3
"""How many refused topics an answer names."""
DEFAULT: Final = -1
"""As many replicas as the controller gives to topics that do not say."""


class _Refusal(NamedTuple):
    reason: str
    until_ms: int


class StreamsTopics:
    def __init__(
        self, groups: GroupCoordinator, topics: TopicService, rights: Rights, clock: Clock
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._rights = rights
        self._clock = clock
        self._asked: set[str] = set()
        self._refusals: dict[str, _Refusal] = {}
        """The oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def complete(self, principal: Principal, client_id: str, group_id: str, answer: Any) -> Any:
        """The heartbeat's answer, which says why topics cannot be created; others are begun."""
        status = next(
            (s for s in answer.status or () if s.status_code == StatusCode.MISSING_INTERNAL_TOPICS),
            None,
        )
        missing = () if status is None else self._groups.missing_topics(group_id)
        if status is None or not missing:
            return answer
        denied = self._denied(principal, [topic.info.name for topic in missing])
        if denied:
            status.status_detail += f"; no right to create {', '.join(denied)}."
            return answer
        self._begin(principal, client_id, group_id, missing)
        reasons = self._reasons(missing)
        if reasons:
            status.status_detail += f"; they could not be created: {reasons}."
        return answer

    def _denied(self, principal: Principal, names: Sequence[str]) -> list[str]:
        if self._rights.cluster_shows(principal, Operation.CREATE):
            return []
        return [n for n in names if not self._rights.topic(principal, Operation.CREATE, n)]

    # -- creating ------------------------------------------------------------------------------

    def _begin(
        self,
        principal: Principal,
        client_id: str,
        group_id: str,
        missing: Collection[ResolvedTopic],
    ) -> None:
        wanted = [
            topic
            for topic in missing
            if topic.info.name not in self._asked and self._refusal(topic.info.name) is None
        ]
        if not wanted:
            return
        self._asked.update(topic.info.name for topic in wanted)
        task = asyncio.create_task(self._create(principal, client_id, group_id, wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(
        self,
        principal: Principal,
        client_id: str,
        group_id: str,
        wanted: Collection[ResolvedTopic],
    ) -> None:
        names = [topic.info.name for topic in wanted]
        try:
            made = await self._topics.make(principal, [_creatable(t) for t in wanted], client_id)
            refused = {
                topic.name: topic.error_message or ErrorCode(topic.error_code).name
                for topic in made.topics
                if topic.error_code
            }
        except ApiError as e:
            refused = dict.fromkeys(names, e.message or e.code.name)
        finally:
            self._asked.difference_update(names)
        interval_ms = self._groups.streams_config(group_id).streams_heartbeat_interval_ms
        until_ms = self._clock.now_ms() + RETRY_HEARTBEATS * interval_ms
        for name, reason in refused.items():
            self._refusals.pop(name, None)
            self._refusals[name] = _Refusal(reason, until_ms)
        surplus = max(len(self._refusals) - REFUSALS_MAX, 0)
        for name in list(itertools.islice(self._refusals, surplus)):
            del self._refusals[name]

    # -- refusals ------------------------------------------------------------------------------

    def _refusal(self, name: str) -> str | None:
        """Why a topic was refused not long ago."""
        refusal = self._refusals.get(name)
        if refusal is None:
            return None
        if refusal.until_ms <= self._clock.now_ms():
            del self._refusals[name]
            return None
        return refusal.reason

    def _reasons(self, missing: Collection[ResolvedTopic]) -> str:
        found = [
            f"{topic.info.name} ({reason})"
            for topic in missing
            if (reason := self._refusal(topic.info.name)) is not None
        ]
        more = len(found) - REASONS_MAX
        told = ", ".join(found[:REASONS_MAX])
        return f"{told} and {more} more" if more > 0 else told


def _creatable(topic: ResolvedTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.info.name,
        num_partitions=topic.partitions,
        replication_factor=topic.info.replication_factor or DEFAULT,
        configs=[
            CreatableTopicConfig(name=config.key, value=config.value)
            for config in topic.info.topic_configs
        ],
    )
