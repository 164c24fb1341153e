"""A queue in Kafka's protocol: a topic with a share group, on Penstock and Apache Kafka alike.

The group begins at the earliest record; everything else of it is by default. Members join by
ShareGroupHeartbeat before the load and leave after it. No case lasts as long as a session (45 s),
so nothing beats meanwhile.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from itertools import count, pairwise

from tests.support.raw import RawClient
from tests.support.share_groups import set_group
from tests.support.waiting import eventually

from penstock.base.errors import ErrorCode
from penstock.cli.bench.requests import batch_of, check_produce_response, produce_frame
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .kafka_wire import KafkaWire
from .queue_wire import BY_DEFAULT, Asking, QueueConsumer, QueueWire, await_left
from .share_member import Delivery, Place, PromptMember, ShareMember, check
from .wire import Consumer, PeerError

PARTITIONS = 4
FIND_VERSION = 4
GROUP_KEY = 0
HEARTBEAT_VERSION = 1
DESCRIBE_VERSION = 1
JOINS, LEAVES = 0, -1
JOIN_S_MAX = 90.0
BEAT_S = 0.1
FILL_UNDER_WAY = 8
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def coordinator_of(client: RawClient, group: str) -> tuple[str, int] | None:
    """Where a group's coordinator is; None while there is none."""
    request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group])
    [found] = client.call(request, FIND_VERSION).coordinators
    return None if found.error_code else (found.host, found.port)


class Joining:
    """Members of one group, until each has its part of a topic. One connection beats for all."""

    def __init__(self, client: RawClient, group: str, topic: str, members: int) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._epochs = {str(uuid.uuid4()): JOINS for _ in range(members)}
        self.places: dict[str, list[Place]] = {}

    def assigned(self, partitions: int) -> dict[str, list[Place]]:
        """Each member's partitions, once the assignment has stood for a round of heartbeats."""
        eventually(lambda: coordinator_of(self._client, self._group), JOIN_S_MAX, BEAT_S)
        eventually(lambda: self.has_all(partitions), JOIN_S_MAX, BEAT_S)
        return self.places

    def has_all(self, partitions: int) -> bool:
        """Whether so many partitions are assigned; beats once for each member."""
        changed = [self._beat(member) for member in self._epochs]
        covered = {place for places in self.places.values() for place in places}
        whole = all(self.places.get(member) for member in self._epochs)
        steady = whole and len(covered) == partitions and not any(changed)
        return steady and len(set(self._epochs.values())) == 1

    def _beat(self, member: str) -> bool:
        """Whether something of the member has changed."""
        epoch = self._epochs[member]
        answer = self._client.call(
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=member,
                member_epoch=epoch,
                subscribed_topic_names=[self._topic] if epoch == JOINS else None,
            ),
            HEARTBEAT_VERSION,
        )
        if answer.error_code in PASSING:
            return True
        check(answer.error_code, "have a member in a share group")
        self._epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            self.places[member] = [
                Place(topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            ]
        return answer.assignment is not None or answer.member_epoch != epoch


class ShareQueue(QueueWire):
    """Topics of `PARTITIONS` partitions on one broker, each with a group of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._topics = KafkaWire(host, port, fsync=False)
        self._members: dict[str, list[str]] = {}
        self._groups: dict[str, str] = {}
        self._numbers = count()

    def make(self, queue: str) -> None:
        self._topics.make(queue, partitions=PARTITIONS)
        self.begin_again(queue)

    def begin_again(self, queue: str) -> None:
        """Whoever comes from now on belongs to another group, and so gets all messages."""
        self.leave(queue)
        group = self._groups[queue] = f"{queue}-workers-{next(self._numbers)}"
        with RawClient(*self._address) as client:
            set_group(client, group, share_auto_offset_reset="earliest")

    def group(self, queue: str) -> str:
        """The group that consumes it."""
        return self._groups[queue]

    def remove(self, queue: str) -> None:
        self.leave(queue)
        self._topics.remove(queue)

    def fill(self, queue: str, messages: int, *, size: int, per_batch: int) -> int:
        """Each request has a batch for each partition; some are under way at a time."""
        batch = batch_of(size, per_batch)
        request = produce_frame(queue, list(range(PARTITIONS)), batch, acks=1)
        requests = -(-messages // (per_batch * PARTITIONS))
        with RawClient(*self._address) as client:
            for sent in range(requests + FILL_UNDER_WAY):
                if sent < requests:
                    client.socket.sendall(request)
                if sent >= FILL_UNDER_WAY and sent - FILL_UNDER_WAY < requests:
                    check_produce_response(client.receive_frame())
        return requests * per_batch * PARTITIONS

    def join(
        self, queue: str, members: int, partitions: int = PARTITIONS
    ) -> dict[str, list[Place]]:
        """The partitions of so many new members."""
        with RawClient(*self._address) as client:
            found = Joining(client, self._groups[queue], queue, members).assigned(partitions)
        self._members.setdefault(queue, []).extend(found)
        return found

    def leave(self, queue: str) -> None:
        """Its members are gone."""
        members = self._members.pop(queue, [])
        if not members:
            return
        with RawClient(*self._address) as client:
            for member in members:
                request = ShareGroupHeartbeatRequest(
                    group_id=self._groups[queue], member_id=member, member_epoch=LEAVES
                )
                answer = client.call(request, HEARTBEAT_VERSION)
                check(answer.error_code, "let a member leave")

    def consumers(
        self, queue: str, socks: Sequence[socket.socket], asking: Asking
    ) -> list[ShareMember]:
        joined = self.join(queue, len(socks))
        return [
            ShareMember(self._groups[queue], member, places, asking)
            for member, places in joined.items()
        ]

    def check(self, queue: str, consumers: Sequence[QueueConsumer], filled: int) -> None:
        members = [consumer for consumer in consumers if isinstance(consumer, ShareMember)]
        delivered = sorted(delivery for member in members for delivery in member.delivered)
        check_once(delivered, filled)
        left = filled - sum(member.acknowledged for member in members)
        await_left(lambda: self._lag(queue), left)

    def _lag(self, queue: str) -> int:
        """How many messages of a queue are not acknowledged."""
        topic = DescribeShareGroupOffsetsRequestTopic(
            topic_name=queue, partitions=list(range(PARTITIONS))
        )
        group = DescribeShareGroupOffsetsRequestGroup(group_id=self._groups[queue], topics=[topic])
        with RawClient(*self._address) as client:
            request = DescribeShareGroupOffsetsRequest(groups=[group])
            [answer] = client.call(request, DESCRIBE_VERSION).groups
        check(answer.error_code, "say what is left in a queue")
        return sum(part.lag for topic in answer.topics for part in topic.partitions)


def check_once(delivered: Sequence[Delivery], filled: int) -> None:
    """Of sorted deliveries: each message once; if there are as many as the queue held, all."""
    for delivery in delivered:
        if delivery.times != 1:
            raise PeerError(f"messages were given out {delivery.times} times: {delivery}")
    for before, after in pairwise(delivered):
        if before.place == after.place and after.first <= before.last:
            raise PeerError(f"messages were given to two members: {before} and {after}")
    records = sum(delivery.records for delivery in delivered)
    if records > filled:
        raise PeerError(f"{records} messages were given out of {filled}")
    gaps = any(
        before.place == after.place and after.first != before.last + 1
        for before, after in pairwise(delivered)
    )
    begins = {delivery.place: delivery.first for delivery in reversed(delivered)}
    if records == filled and (gaps or any(begins.values())):
        raise PeerError(f"not all of the {filled} messages of a queue were given out")


class PromptWire(KafkaWire):
    """A topic of one partition, and a group whose one member acknowledges at once."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, fsync=False)
        self._queues = ShareQueue(host, port)

    def make(self, topic: str, *, groups: int = 1, partitions: int = 1) -> None:
        super().make(topic, groups=groups, partitions=partitions)
        self._queues.begin_again(topic)

    def remove(self, topic: str) -> None:
        self._queues.leave(topic)
        super().remove(topic)

    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> Consumer:
        [(member, places)] = self._queues.join(topic, 1, partitions=1).items()
        return PromptMember(self._queues.group(topic), member, places, BY_DEFAULT)
