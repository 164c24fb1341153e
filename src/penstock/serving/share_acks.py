"""The acknowledgements of one request: checked, begun, and answered when they are written.

Each partition stands for itself: what is wrong with the acknowledgements of one does not hold up
the others. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.base.steps import Steps
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.rights import TOPIC_DENIED, Rights
from penstock.serving.share_driver import ShareCounts
from penstock.serving.share_partitions import SharePartitions
from penstock.share.partition import AckBatch
from penstock.share.types import ShareKey
from penstock.wire.messages import share_acknowledge, share_fetch

RENEW: Final = 4
RENEW_FROM: Final = 2
"""The first version of both APIs that may ask for more time."""
_INVALID: Final = ApiError(
    ErrorCode.INVALID_REQUEST,
    "ranges ascend and do not overlap, each has one type or one for each offset, and only a "
    "request that says so renews",
)

Place: TypeAlias = tuple[Uuid, int]
Given: TypeAlias = (
    Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch]
)
Topics: TypeAlias = Sequence[share_fetch.FetchTopic] | Sequence[share_acknowledge.AcknowledgeTopic]


class Member(NamedTuple):
    """Who acknowledges, and by what right."""

    principal: Principal
    group_id: str
    member_id: str


class Acknowledging:
    """The acknowledgements of one request, until all are answered."""

    __slots__ = ("_begun", "_done", "_left", "answers")

    _done: Callable[[], None] | None

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called once, when all are answered."""
        self.answers: dict[Place, ApiError | None] = {}
        self._done = done
        self._left = 0
        self._begun = False

    @property
    def is_over(self) -> bool:
        return self._begun and not self._left

    def expect(self, place: Place) -> Callable[[ApiError | None], None]:
        """To be called with the answer for a partition."""
        self._left += 1

        def answered(error: ApiError | None) -> None:
            self.answers[place] = error
            self._left -= 1
            self._end_if_over()

        return answered

    def all_begun(self) -> None:
        self._begun = True
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self.is_over:
            done, self._done = self._done, None  # no request may lie in a cycle
            if done is not None:
                done()


class Acknowledger:
    def __init__(
        self, partitions: SharePartitions, replicas: ReplicaManager, rights: Rights
    ) -> None:
        self._partitions = partitions
        self._replicas = replicas
        self._rights = rights

    @property
    def _counts(self) -> ShareCounts:
        return self._partitions.counts

    def begin(
        self, member: Member, topics: Topics, acks: Acknowledging, *, version: int, renews: bool
    ) -> Steps[None]:
        """Begin what `topics` ask for; one step for each partition."""
        types_max = RENEW if version >= RENEW_FROM else RENEW - 1
        for topic in topics:
            for partition in topic.partitions:
                batches = partition.acknowledgement_batches
                if batches:
                    place = (topic.topic_id, partition.partition_index)
                    answered = acks.expect(place)
                    try:
                        given = checked(batches, types_max, renews=renews)
                        self._begin(member, place, given, answered)
                    except ApiError as e:
                        answered(e)
                    yield
        acks.all_begun()

    def _begin(
        self,
        member: Member,
        place: Place,
        batches: list[AckBatch],
        answered: Callable[[ApiError | None], None],
    ) -> None:
        topic_id, index = place
        self._replicas.topic(topic_id)  # an id that nobody knows is told before anything else
        if not self._rights.topic(member.principal, Operation.READ, topic_id):
            raise TOPIC_DENIED
        self._replicas.registration(topic_id, index)
        driver = self._partitions.found(ShareKey(member.group_id, topic_id, index))

        def done(error: ApiError | None) -> None:
            if error is None:
                self._count(batches)
            answered(error)

        driver.acknowledge(member.member_id, batches, done)

    def _count(self, batches: Iterable[AckBatch]) -> None:
        counted = self._counts.acknowledged
        for first, last, types in batches:
            if len(types) == 1:
                counted[types[0]] += last - first + 1
            else:
                for kind in types:
                    counted[kind] += 1


def checked(batches: Given, types_max: int, *, renews: bool) -> list[AckBatch]:
    """The acknowledgements of one partition, if they are well formed."""
    before = -1
    found = []
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        well_formed = (
            before <= first <= last
            and types
            and (len(types) == 1 or len(types) == last - first + 1)
            and min(types) >= 0
            and max(types) <= types_max
            and (renews or RENEW not in types)
        )
        if not well_formed:
            raise _INVALID
        before = last
        found.append(AckBatch(first, last, types))
    return found
