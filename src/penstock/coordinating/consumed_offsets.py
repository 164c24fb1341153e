"""How far all groups of a topic have consumed it: every coordinator of the cluster is asked.

A topic's groups are the consumer groups that have a committed offset for it and the share groups
that have a state for it. `survey` finds the cluster's groups, `slowest` asks where they are. What
is not known for sure is `NotKnown`, and nothing may be deleted then:

* A coordinator does not answer, or is being loaded; a state cannot be read.
* An internal topic has been led by others since the last survey: a group that moves meanwhile could
  be asked for where it is not any more, and where it is not yet. For the same reason each answer
  has to show that its node coordinates all that it is taken for: for each partition of
  `__consumer_offsets` a group is asked for that would be kept there (`_probes`).
* All that a group has committed is still part of an open transaction.

Coordinators answer when what the answer rests on is committed, and what they know only grows old:
then groups have consumed more than is known here. A group that was made since a coordinator was cut
off, unknown to itself, is a new one, which begins where the log begins. Offsets of open
transactions count from the end of the transaction; until then the one before does.

Limits: `OFFSETS_AT_ONCE_MAX` a request, `ANSWER_S_MAX` for its answer. Owned by the event loop's
thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, PenstockError
from penstock.coordinating.coordinators import java_hash
from penstock.metadata.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from penstock.net.turn import Turn
from penstock.peers.peers import Channel
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from penstock.coordinating.group_coordinator import GroupCoordinator
    from penstock.coordinating.share_persister import SharePersister
    from penstock.metadata.image import MetadataImage, Topic
    from penstock.partitions.metadata_brokers import MetadataBrokers
    from penstock.peers.peers import Peers

ANSWER_S_MAX: Final = 5.0
OFFSETS_AT_ONCE_MAX: Final = 10_000
LIST_VERSION: Final = 5
"""The first that tells types of groups."""
FETCH_VERSION: Final = 10
"""The first that names topics by their ids."""
SHARE: Final = "share"
NOT_COMMITTED: Final = -1
UNKNOWN_START: Final = -1

_Leaders: TypeAlias = dict[tuple[str, int], tuple[int, int]]


class NotKnown(PenstockError):
    """It cannot be said now how far all groups are."""


class Position(NamedTuple):
    """Below the offset a group has consumed all of a partition."""

    offset: int
    group_id: str


class Survey(NamedTuple):
    """The groups of the cluster."""

    by_node: dict[int, list[str]]
    """Those that commit offsets, by the nodes that coordinate them; their probes come last."""
    share: list[str]


class ConsumedOffsets:
    def __init__(
        self,
        node_id: int,
        metadata: MetadataImage,
        groups: GroupCoordinator,
        persister: SharePersister,
        brokers: MetadataBrokers,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._groups = groups
        self._persister = persister
        self._brokers = brokers
        self._peers = peers
        self._seen: _Leaders | None = None

    # -- which groups there are ----------------------------------------------------------------

    async def survey(self) -> Survey:
        """All groups, from the nodes that have coordinated them since the last survey."""
        leaders = self._leaders()
        seen, self._seen = self._seen, leaders
        if seen != leaders:
            raise NotKnown("coordinators have changed since the last look")
        if any(leader < 0 for leader, _ in leaders.values()):
            raise NotKnown("a coordinator is away")
        of_nodes = {leader for (topic, _), (leader, _) in leaders.items() if topic == OFFSETS_TOPIC}
        nodes = sorted(of_nodes)
        listed = await asyncio.gather(*(self._list(node) for node in nodes))
        probes = self._probes(leaders)
        by_node, share = {}, []
        for node, found in zip(nodes, listed, strict=True):
            share += [group.group_id for group in found if group.group_type.lower() == SHARE]
            others = [group.group_id for group in found if group.group_type.lower() != SHARE]
            by_node[node] = others + probes[node]
        return Survey(by_node, share)

    def _leaders(self) -> _Leaders:
        """The leader and its epoch of each partition that keeps where groups are."""
        topics = (self._metadata.topics.get(name) for name in (OFFSETS_TOPIC, SHARE_STATE_TOPIC))
        return {
            (topic.name, index): (partition.leader, partition.leader_epoch)
            for topic in topics
            if topic is not None
            for index, partition in enumerate(topic.partitions)
        }

    def _probes(self, leaders: _Leaders) -> dict[int, list[str]]:
        """For each node a group's id for each partition of the offsets that it is to lead."""
        left = {index: at[0] for (topic, index), at in leaders.items() if topic == OFFSETS_TOPIC}
        count, number = len(left), 0
        found: dict[int, list[str]] = {node: [] for node in left.values()}
        while left:
            probe = f"penstock.probe.{number}"
            node = left.pop(java_hash(probe) % count, None)
            if node is not None:
                found[node].append(probe)
            number += 1
        return found

    async def _list(self, node: int) -> list[Any]:
        found = []
        for answer in await self._ask(node, ListGroupsRequest(), LIST_VERSION):
            # A shard that has moved to another node does not answer for its probe either.
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                raise NotKnown(f"node {node} lists no groups: {_name(answer.error_code)}")
            found += answer.groups
        return found

    # -- where they are ------------------------------------------------------------------------

    async def slowest(
        self, survey: Survey, topic: Topic, indexes: Sequence[int]
    ) -> dict[int, Position]:
        """The group that is furthest behind in each partition; partitions without any are left
        out.
        """
        found: dict[int, Position] = {}
        for node, groups in survey.by_node.items():
            _keep_slowest(found, await self._committed(node, groups, topic, indexes))
        if SHARE_STATE_TOPIC in self._metadata.topics:
            for group_id in survey.share:
                _keep_slowest(found, await self._share_starts(group_id, topic, indexes))
        return found

    async def _committed(
        self, node: int, groups: list[str], topic: Topic, indexes: Sequence[int]
    ) -> list[tuple[int, Position]]:
        """What groups have committed. Those that have offsets in an open transaction are asked for
        a second time, for what they had committed before.
        """
        found = []
        for stable in (True, False):
            unstable: dict[str, None] = {}
            for answer in await self._fetch(node, groups, topic, indexes, stable=stable):
                for group_id, index, offset, code in _offsets(answer):
                    if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                        unstable[group_id] = None
                    elif code:
                        raise NotKnown(f"node {node} tells no offset of {group_id}: {_name(code)}")
                    elif offset != NOT_COMMITTED:
                        found.append((index, Position(offset, group_id)))
                    elif not stable:
                        raise NotKnown(f"group {group_id} is in its first transaction")
            groups = list(unstable)
            if not groups:
                break
        return found

    async def _fetch(
        self, node: int, groups: list[str], topic: Topic, indexes: Sequence[int], *, stable: bool
    ) -> list[Any]:
        answers: list[Any] = []
        at_once = max(OFFSETS_AT_ONCE_MAX // max(len(indexes), 1), 1)
        for at in range(0, len(groups), at_once):
            asked = [
                OffsetFetchRequestGroup(
                    group_id=group_id,
                    topics=[
                        OffsetFetchRequestTopics(
                            name=topic.name, topic_id=topic.id, partition_indexes=list(indexes)
                        )
                    ],
                )
                for group_id in groups[at : at + at_once]
            ]
            request = OffsetFetchRequest(groups=asked, require_stable=stable)
            answers += await self._ask(node, request, FETCH_VERSION)
        return answers

    async def _share_starts(
        self, group_id: str, topic: Topic, indexes: Sequence[int]
    ) -> list[tuple[int, Position]]:
        partitions = [(topic.id, index) for index in indexes]
        starts = []
        for (_, index), state in (await self._persister.summary(group_id, partitions)).items():
            if isinstance(state, ErrorCode):
                raise NotKnown(f"the state of share group {group_id} is not told: {state.name}")
            if state.start_offset != UNKNOWN_START:
                starts.append((index, Position(state.start_offset, group_id)))
            elif state.state_epoch:
                # It has been assigned, and where it begins is found with its first fetch.
                starts.append((index, Position(0, group_id)))
        return starts

    # -- asking --------------------------------------------------------------------------------

    async def _ask(self, node: int, request: Any, version: int) -> list[Any]:
        """The answer of a node; of this one, those of its shards."""
        if node == self._node_id:
            return await self._ask_here(request, version)
        address = self._brokers.address(node)
        if address is None:
            raise NotKnown(f"node {node} is not registered")
        try:
            return [
                await self._peers.send(address, Channel.OFFSETS, request, version, ANSWER_S_MAX)
            ]
        except PenstockError as e:
            raise NotKnown(str(e)) from e

    async def _ask_here(self, request: Any, version: int) -> list[Any]:
        answers, turn = [], Turn()
        for answer in self._answers_here(request, version):
            answers.append(await answer if inspect.isawaitable(answer) else answer)
            if turn.is_over:
                await turn.next()
        return answers

    def _answers_here(self, request: Any, version: int) -> Iterator[Any | Awaitable[Any]]:
        if isinstance(request, ListGroupsRequest):
            yield from self._groups.everywhere(request, version, "", "")
            return
        for group in request.groups:
            one = OffsetFetchRequest(groups=[group], require_stable=request.require_stable)
            yield self._groups.submit(group.group_id, one, version, "", "")


def _keep_slowest(found: dict[int, Position], positions: Iterable[tuple[int, Position]]) -> None:
    for index, position in positions:
        found[index] = min(position, found.get(index, position))


def _offsets(answer: Any) -> Iterable[tuple[str, int, int, int]]:
    """(group, partition, offset, error) of one topic's partitions; of a group that is refused, once
    with its error.
    """
    for group in answer.groups:
        if group.error_code:
            yield group.group_id, -1, NOT_COMMITTED, group.error_code
        for topic in group.topics:
            for of in topic.partitions:
                yield group.group_id, of.partition_index, of.committed_offset, of.error_code


def _name(code: int) -> str:
    return ErrorCode(code).name
