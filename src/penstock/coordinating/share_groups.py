"""Share groups beyond their shards: what the share coordinator is asked on their behalf.

Duty: begin the states of partitions that a group's heartbeat found to be new, and carry out what
administrators ask about offsets, in the two halves of `coordinator.share_group.admin` with the
share coordinator's answer between them. Nothing is asked before the records that announce it are
committed.

A shard that was replayed meanwhile takes the second half all the same: it names partitions, not
what was in memory. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicPartition, Uuid
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.refusals import refuse
from penstock.coordinator.shard import GroupShard
from penstock.coordinator.share_group import ShareGroup, admin
from penstock.coordinator.share_group.engine import Initialize
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.wire.schema import Message

if TYPE_CHECKING:
    from penstock.coordinating.end_offsets import EndOffsets
    from penstock.coordinating.shard_driver import ShardDriver
    from penstock.coordinating.share_persister import SharePersister, ShareSummary
    from penstock.coordinator.topics import TopicsView

UNKNOWN_START: Final = -1
UNKNOWN_COUNT: Final = -1
UNKNOWN_LAG: Final = -1

Partition: TypeAlias = tuple[Uuid, int]
Driver: TypeAlias = "ShardDriver[GroupShard]"


class ShareGroups:
    def __init__(
        self,
        driver_of: Callable[[str], Driver | None],
        topics: TopicsView,
        persister: SharePersister,
        ends: EndOffsets,
    ) -> None:
        """`driver_of` finds the shard of a group, if it is on this node."""
        self._driver_of = driver_of
        self._topics = topics
        self._persister = persister
        self._ends = ends
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what heartbeats ask for ---------------------------------------------------------------

    def begin(self, action: Initialize) -> None:
        """Have the states of partitions begun, and tell the group."""
        self._later(self._initialize(action))

    async def _initialize(self, action: Initialize) -> None:
        group_id, epoch = action.group_id, action.state_epoch
        codes = await self._persister.initialize(
            group_id, {partition: (epoch, start) for partition, start in action.starts.items()}
        )
        self._tell_initialized(group_id, codes)

    def _tell_initialized(self, group_id: str, codes: Mapping[Partition, ErrorCode]) -> None:
        driver = self._driver_of(group_id)
        if driver is not None:
            done = [partition for partition, code in codes.items() if not code]
            refused = [partition for partition, code in codes.items() if code]
            driver.event(lambda shard, now_ms: shard.initialized(group_id, done, refused, now_ms))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what administrators ask for -----------------------------------------------------------

    async def alter(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """Move the starts of an empty group's partitions; makes the group if there is none."""
        group_id = request.group_id
        plans: list[admin.Moved] = []

        def begin(shard: GroupShard, now_ms: int) -> tuple[Effects, Message]:
            effects = Effects()
            group = shard.share_group_or_new(group_id)
            plans.append(admin.move(group, request.topics, effects, now_ms))
            shard.keep(group, effects)
            return effects, AlterShareGroupOffsetsResponse(responses=plans[0].topics)

        answer: AlterShareGroupOffsetsResponse = await self._step(group_id, request, begin)
        if answer.error_code or not plans[0].starts:
            return answer
        epoch, starts, topics = plans[0]
        codes = await self._persister.initialize(
            group_id, {partition: (epoch, start) for partition, start in starts.items()}
        )
        self._tell_initialized(group_id, codes)
        for topic in topics:
            for partition in topic.partitions:
                code = codes.get((topic.topic_id, partition.partition_index))
                if code and not partition.error_code:
                    partition.error_code = code
        return answer

    async def delete_offsets(
        self, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse:
        """Forget topics of an empty group."""
        group_id = request.group_id
        names = [topic.topic_name for topic in request.topics]
        plans: list[admin.Forgotten] = []

        def begin(shard: GroupShard, _: int) -> tuple[Effects, Message]:
            effects = Effects()
            plans.append(admin.forget_topics(shard.share_group(group_id), names, effects))
            return effects, DeleteShareGroupOffsetsResponse(responses=plans[0].refused)

        answer: DeleteShareGroupOffsetsResponse = await self._step(group_id, request, begin)
        if answer.error_code or not plans[0].names:
            return answer
        codes = await self._persister.delete(group_id, plans[0].partitions)
        failed = {topic_id: code for (topic_id, _), code in codes.items() if code}
        gone = [topic_id for topic_id in plans[0].names if topic_id not in failed]

        def end(shard: GroupShard, _: int) -> tuple[Effects, Message]:
            effects = Effects()
            admin.forgotten(shard.share_group(group_id), gone, effects)
            answered = [
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=id_, error_code=failed.get(id_, ErrorCode.NONE)
                )
                for id_, name in plans[0].names.items()
            ]
            return effects, DeleteShareGroupOffsetsResponse(
                responses=[*answered, *plans[0].refused]
            )

        found: DeleteShareGroupOffsetsResponse = await self._step(group_id, request, end)
        return found

    async def forget(self, group_id: str, request: Message, version: int) -> Message | None:
        """What comes before the deletion of a share group: its states are deleted. The answer if
        the group cannot be deleted.
        """
        partitions: list[Partition] = []

        def begin(shard: GroupShard, _: int) -> tuple[Effects, Message]:
            effects = Effects()
            partitions.extend(admin.forget_all(shard.share_group(group_id), effects))
            return effects, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id)])

        answer = await self._step(group_id, request, begin, version)
        if answer.results[0].error_code:
            return answer  # type: ignore[no-any-return]
        codes = await self._persister.delete(group_id, partitions) if partitions else {}
        code = next((code for code in codes.values() if code), ErrorCode.NONE)
        return refuse(request, version, code) if code else None

    async def _step(
        self,
        group_id: str,
        request: Message,
        happen: Callable[[GroupShard, int], tuple[Effects, Message]],
        version: int = 0,
    ) -> Any:
        """An event of the group's shard that is answered once its records are committed."""
        driver = self._driver_of(group_id)
        if driver is None:
            return refuse(request, version, ErrorCode.NOT_COORDINATOR)

        def handle(shard: GroupShard, caller: Caller, now_ms: int) -> Effects:
            try:
                effects, answer = happen(shard, now_ms)
            except ApiError as e:
                return Effects.reply(caller, refuse(request, version, e.code, e.message))
            effects.answer(caller, answer)
            return effects

        answer: Message | Awaitable[Message] = driver.submit(
            request, version, "", "", handle=handle
        )
        return await answer if inspect.isawaitable(answer) else answer

    # -- what is shown -------------------------------------------------------------------------

    def initialized(self, group_id: str) -> list[Partition]:
        """The partitions of a group that have a state; ApiError where another node has the group.
        None for a group that is not there.
        """
        driver = self._driver_of(group_id)
        if driver is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        code = driver.unready
        if code is not None:
            raise ApiError(code)
        group = driver.shard.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return []
        return [
            (topic_id, number)
            for topic_id, state in group.states.initialized.items()
            for number in sorted(state.numbers)
        ]

    async def describe(
        self, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Where partitions of a group start and how much of them is still to be consumed: of those
        that are named, or of all.
        """
        answer = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        unknown = []
        partitions: list[Partition] = []
        if asked.topics is None:
            partitions = self.initialized(asked.group_id)
        for topic in asked.topics or ():
            topic_id = self._topics.topic_id(topic.topic_name)
            if topic_id is None:
                unknown.append(_not_there(topic.topic_name, topic.partitions))
            else:
                partitions += ((topic_id, number) for number in topic.partitions)
        named = {id_: self._topics.name_of(id_) for id_, _ in partitions}
        partitions = [(id_, number) for id_, number in partitions if named[id_] is not None]
        there = [(id_, number) for id_, number in partitions if self._is_there(named[id_], number)]
        found = await self._persister.summary(asked.group_id, there) if there else {}
        ends = await self._ends.latest(
            TopicPartition(named[id_] or "", number)
            for (id_, number), summary in found.items()
            if _has_lag(summary)
        )
        topics: dict[Uuid, DescribeShareGroupOffsetsResponseTopic] = {}
        for topic_id, number in partitions:
            name = named[topic_id] or ""
            if topic_id not in topics:
                topics[topic_id] = DescribeShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=topic_id
                )
            end = ends.get(TopicPartition(name, number))
            summary = found.get((topic_id, number), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topics[topic_id].partitions.append(_described(number, summary, end))
        answer.topics = [*topics.values(), *unknown]
        return answer

    def _is_there(self, topic: str | None, number: int) -> bool:
        """The share coordinator would be asked for long about a partition that is not."""
        return topic is not None and 0 <= number < (self._topics.partition_count(topic) or 0)


def _has_lag(summary: ShareSummary | ErrorCode) -> bool:
    return (
        not isinstance(summary, ErrorCode)
        and summary.start_offset != UNKNOWN_START
        and summary.delivery_complete_count != UNKNOWN_COUNT
    )


def _described(
    number: int, summary: ShareSummary | ErrorCode, end: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    described = DescribeShareGroupOffsetsResponsePartition(
        partition_index=number, start_offset=UNKNOWN_START, lag=UNKNOWN_LAG
    )
    if isinstance(summary, ErrorCode):
        return described  # as in Kafka: what cannot be read is not there
    if isinstance(end, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(partition_index=number, error_code=end)
    described.start_offset = summary.start_offset
    described.leader_epoch = summary.leader_epoch
    if end is not None:
        described.lag = end - summary.start_offset - summary.delivery_complete_count
    return described


def _not_there(name: str, numbers: Collection[int]) -> DescribeShareGroupOffsetsResponseTopic:
    """A topic that does not exist has no offsets, which is no error."""
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number, start_offset=UNKNOWN_START, lag=UNKNOWN_LAG
            )
            for number in numbers
        ],
    )
