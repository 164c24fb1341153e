"""Simulated members of consumer groups, in both protocols, that commit offsets as they go.

They do not read: a member's position is a number that grows while it owns the partition, which is
all that the coordinator can see of a consumer. `GroupHistory` holds what must be true of the
answers:
* a committed offset never goes back: who asks is told at least what was acknowledged before;
* a generation of a classic group has one assignment, in which a partition has one owner;
* in the newer protocol a partition is given to a member only when no other holds it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .checks import holds
from .trace import Trace
from .wire import Wire, pause

SESSION_TIMEOUT_S = 10.0
HEARTBEAT_S = 1.0
RETRY_S = 0.2
NONE = ErrorCode.NONE


class GroupHistory:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.committed: dict[tuple[str, int], int] = {}
        self.generations: dict[tuple[str, int], dict[int, str]] = {}
        self.holders: dict[tuple[str, int], tuple[str, float]] = {}
        """By group and partition: who holds it, and until when it surely does."""
        self.commits = 0

    def commit_acknowledged(self, group: str, partition: int, offset: int) -> None:
        known = self.committed.get((group, partition), -1)
        self.committed[group, partition] = max(known, offset)
        self.commits += 1

    def fetched(self, group: str, partition: int, offset: int, floor: int, who: str) -> None:
        """`floor` had been acknowledged when `who` asked."""
        holds(
            offset >= floor,
            f"group {group}: {who} was told offset {offset} of partition {partition}, but {floor} "
            "had been committed",
        )

    def synced(self, group: str, generation: int, member: str, partitions: list[int]) -> None:
        owners = self.generations.setdefault((group, generation), {})
        for partition in partitions:
            owner = owners.setdefault(partition, member)
            holds(
                owner == member,
                f"group {group}: {owner} and {member} both own {partition} in {generation}",
            )

    def given(self, group: str, member: str, partitions: list[int], until: float) -> None:
        """`member` may use `partitions`, and will say so before it stops, up to `until`."""
        for partition in partitions:
            holder, held_until = self.holders.get((group, partition), (member, 0.0))
            holds(
                holder == member or held_until < self._now(),
                f"group {group}: {partition} was given to {member} while {holder} held it",
            )
            self.holders[group, partition] = (member, until)

    def released(self, group: str, member: str, partition: int) -> None:
        if self.holders.get((group, partition), ("", 0.0))[0] == member:
            del self.holders[group, partition]


class Member:
    """What members of both kinds share: the coordinator and the offsets."""

    def __init__(
        self,
        wire: Wire,
        history: GroupHistory,
        trace: Trace,
        rng: random.Random,
        group: str,
        topic: str,
        partitions: int,
    ) -> None:
        self.wire = wire
        self.history = history
        self.trace = trace
        self.rng = rng
        self.group, self.topic = group, topic
        self.partitions = partitions
        self.stopping = False
        self.rounds = 0
        """Rounds of heartbeat and commit that went well."""
        self.member_id = ""
        self.epoch = -1
        self.positions: dict[int, int] = {}
        self._coordinator: Address | None = None

    async def run(self) -> None:
        """Take part in the group until `stopping`."""
        raise NotImplementedError

    async def call(self, request: Any, version: int | None = None) -> Any:
        """Ask the coordinator; None when there is no answer."""
        try:
            if self._coordinator is None:
                await self._find()
            if self._coordinator is None:
                return None
            return await self.wire.call(self._coordinator, request, version, SESSION_TIMEOUT_S)
        except PeerError:
            self._coordinator = None
            return None

    async def _find(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        [found] = (await self.wire.call_any(request)).coordinators
        if found.error_code == NONE:
            self._coordinator = Address(found.host, found.port)

    def lost(self, code: int) -> None:
        """An error that the member cannot go on with says who coordinates no longer."""
        name = ErrorCode(code).name
        self.trace.event(f"{self.wire.name} {name}")
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None

    async def commit(self) -> bool:
        """Read on and commit; whether that went well."""
        if not self.positions:
            return True
        wanted = {p: at + self.rng.randint(0, 9) for p, at in self.positions.items()}
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=p, committed_offset=at, committed_metadata=""
                        )
                        for p, at in wanted.items()
                    ],
                )
            ],
        )
        answer = await self.call(request, 9)
        if answer is None:
            return False
        good = True
        for p in answer.topics[0].partitions:
            if p.error_code == NONE:
                position = wanted[p.partition_index]
                self.history.commit_acknowledged(self.group, p.partition_index, position)
                if p.partition_index in self.positions:
                    self.positions[p.partition_index] = position
            else:
                self.lost(p.error_code)
                good = False
        return good

    async def fetch_offset(self, partition: int) -> int | None:
        """The committed offset from which to go on; None when nobody says."""
        floor = self.history.committed.get((self.group, partition), -1)
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)]
        )
        answer = await self.call(request, 9)
        if answer is None:
            return None
        [group] = answer.groups
        code = group.error_code or group.topics[0].partitions[0].error_code
        if code:
            self.lost(code)
            return None
        offset: int = group.topics[0].partitions[0].committed_offset
        self.history.fetched(self.group, partition, offset, floor, self.wire.name)
        return max(offset, 0)

    async def take(self, partitions: list[int]) -> None:
        for partition in partitions:
            while partition not in self.positions and not self.stopping:
                offset = await self.fetch_offset(partition)
                if offset is not None:
                    self.positions[partition] = offset
                else:
                    await pause(RETRY_S)


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat; assignments are numbers, written as bytes."""

    async def run(self) -> None:
        while not self.stopping:
            if await self._join():
                while not self.stopping and await self._round():
                    self.rounds += 1
                    await pause(HEARTBEAT_S * self.rng.uniform(0.5, 1.0))
            self.positions.clear()
            await pause(RETRY_S)

    async def _join(self) -> bool:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(SESSION_TIMEOUT_S * 1000),
            rebalance_timeout_ms=5_000,
            member_id=self.member_id,
            protocol_type="sim",
            protocols=[JoinGroupRequestProtocol(name="numbers", metadata=b"")],
        )
        answer = await self.call(request, 5)
        if answer is None:
            return False
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self._join()
        if answer.error_code != NONE:
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.lost(answer.error_code)
            return False
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        return await self._sync(answer)

    async def _sync(self, joined: Any) -> bool:
        assignments = []
        if joined.leader == self.member_id:
            members = [member.member_id for member in joined.members]
            for i, member in enumerate(members):
                mine = bytes(range(i, self.partitions, len(members)))
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=mine))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            assignments=assignments,
        )
        answer = await self.call(request, 3)
        if answer is None or answer.error_code != NONE:
            self.lost(NONE if answer is None else answer.error_code)
            return False
        partitions = list(answer.assignment)
        self.trace.say(self.wire.name, f"{self.member_id} has {partitions} in {self.epoch}")
        self.history.synced(self.group, self.epoch, self.member_id, partitions)
        await self.take(partitions)
        return True

    async def _round(self) -> bool:
        """One heartbeat and commit; whether the generation goes on."""
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id
        )
        answer = await self.call(request, 3)
        if answer is None:
            return False
        if answer.error_code != NONE:
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.lost(answer.error_code)
            return False
        return await self.commit()


class ConsumerMember(Member):
    """ConsumerGroupHeartbeat (KIP-848)."""

    async def run(self) -> None:
        self.member_id = f"{self.wire.name}-{self.rng.getrandbits(64):016x}"
        self.epoch = 0
        while not self.stopping:
            if await self._heartbeat() and await self.commit():
                self.rounds += 1
            await pause(HEARTBEAT_S * self.rng.uniform(0.3, 1.0))

    async def _heartbeat(self) -> bool:
        sent = self.history._now()
        joining = self.epoch == 0
        topic_id = self.wire.topic_ids.get(self.topic)
        if topic_id is None:
            try:
                await self.wire.refresh(self.topic)
            except PeerError:
                return False
            return False
        owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(self.positions))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic],
            topic_partitions=[] if joining or not self.positions else owned,
        )
        answer = await self.call(request, 1)
        if answer is None:
            return False
        if answer.error_code != NONE:
            self._refused(answer.error_code)
            return False
        self.epoch = answer.member_epoch
        until = sent + SESSION_TIMEOUT_S
        self.history.given(self.group, self.wire.name, list(self.positions), until)
        if answer.assignment is not None:
            await self._assigned(answer.assignment, until)
        return True

    def _refused(self, code: int) -> None:
        self.lost(code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            for partition in self.positions:
                self.history.released(self.group, self.wire.name, partition)
            self.positions.clear()
            self.epoch = 0

    async def _assigned(self, assignment: Any, until: float) -> None:
        partitions = [p for topic in assignment.topic_partitions for p in topic.partitions]
        for gone in [p for p in self.positions if p not in partitions]:
            del self.positions[gone]
            self.history.released(self.group, self.wire.name, gone)
        self.history.given(self.group, self.wire.name, partitions, until)
        await self.take([p for p in partitions if p not in self.positions])
