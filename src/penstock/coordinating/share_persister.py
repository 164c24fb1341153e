"""The way to the states of share-partitions, wherever they are kept.

Duty: for leaders of partitions and for group coordinators, one call per state, whichever node
coordinates it. The node is looked up in the metadata. What is asked of this node in one loop turn
is handed to its coordinator as it is, without a codec; what is asked of another goes there over
`peers`, and what comes up while a request is under way waits for the next. Either way it is one
request per node, group and kind.

A state whose coordinator has moved, is loading or cannot be reached is asked for again, with a
growing pause, at most `ATTEMPTS_MAX` times; what is written says how records are, not how they
change, so it may arrive twice. Whoever writes sees to it that one share-partition has one write
under way.

Limits: `PARTITIONS_PER_REQUEST_MAX`, `ATTEMPTS_MAX`, `ANSWER_S_MAX`. Owned by the event loop's
thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ApiError, ErrorCode, PenstockError, known_code
from penstock.base.ids import Uuid
from penstock.coordinator.share_state.answers import refused, request_of
from penstock.peers.peers import Channel
from penstock.share.types import UNKNOWN_COUNT, ShareKey, ShareState, StateBatch
from penstock.wire.messages import delete_share_group_state as delete
from penstock.wire.messages import initialize_share_group_state as initialize
from penstock.wire.messages import read_share_group_state as read
from penstock.wire.messages import read_share_group_state_summary as summary
from penstock.wire.messages import write_share_group_state as write
from penstock.wire.schema import Message

if TYPE_CHECKING:
    from penstock.partitions.metadata_brokers import MetadataBrokers
    from penstock.peers.peers import Peers

log = logging.getLogger("penstock.coordinating")

ATTEMPTS_MAX: Final = 10
RETRY_S: Final = 0.05
"""The first pause; each is twice as long as the one before, up to `RETRY_S_MAX`."""
RETRY_S_MAX: Final = 5.0
ANSWER_S_MAX: Final = 10.0
"""Longer than a coordinator waits for its replicas by default."""
PARTITIONS_PER_REQUEST_MAX: Final = 100

_VERSIONS: Final[Mapping[type[Message], int]] = {
    initialize.InitializeShareGroupStateRequest: 0,
    read.ReadShareGroupStateRequest: 0,
    write.WriteShareGroupStateRequest: 1,
    delete.DeleteShareGroupStateRequest: 0,
    summary.ReadShareGroupStateSummaryRequest: 1,
}
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator may learn of a new topic later than this node.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these it is worth asking again."""

Done: TypeAlias = Callable[[ErrorCode, str], None]
Partition: TypeAlias = tuple[Uuid, int]
"""A topic's id and the partition's number."""


class ShareSummary(NamedTuple):
    """What is known of a share-partition beside its records; as if new where nothing is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class LocalCoordinator(Protocol):
    """The share coordinator of this node."""

    def node_of(self, key: ShareKey) -> int | None:
        """The node that keeps a share-partition, as far as the metadata knows."""

    @property
    def has_topic(self) -> bool:
        """Whether there is anywhere to keep it."""

    async def make_topic(self) -> ErrorCode:
        """Have the place made."""

    def serve(self, request: Any, version: int) -> Message | Awaitable[Message]:
        """The answer to a request about states of this node."""


class _Question:
    """What is asked about one share-partition."""

    __slots__ = ("attempts", "done", "key", "kind", "named")

    def __init__(
        self, kind: type[Message], key: ShareKey, named: Any, done: Callable[[Any], None]
    ) -> None:
        self.kind = kind
        self.key = key
        self.named = named
        """Its element in a request."""
        self.done = done
        """Called once, with the element of the answer."""
        self.attempts = 0


class SharePersister:
    def __init__(
        self, node_id: int, brokers: MetadataBrokers, peers: Peers, coordinator: LocalCoordinator
    ) -> None:
        self._node_id = node_id
        self._brokers = brokers
        self._peers = peers
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()
        self._queues: dict[int, list[_Question]] = {}
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._making: asyncio.Task[None] | None = None
        self._pausing: dict[_Question, asyncio.TimerHandle] = {}
        self._stopped = False

    # -- what is asked -------------------------------------------------------------------------

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """The state, for the leader of the partition; leaders before it are fenced from now on.
        ApiError with the coordinator's code.
        """
        named = read.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        found = await self._answer(read.ReadShareGroupStateRequest, key, named)
        if found.error_code:
            raise ApiError(known_code(found.error_code), found.error_message or "")
        batches = [
            StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count, b.cause)
            for b in found.state_batches
        ]
        # The answer has no count; the leader counts the batches.
        return ShareState(found.state_epoch, found.start_offset, UNKNOWN_COUNT, batches)

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        done: Done,
    ) -> None:
        """Write what has changed; `done` is called with the outcome, never within this call."""
        named = write.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[
                write.StateBatch(
                    first_offset=first,
                    last_offset=last,
                    delivery_state=of,
                    delivery_count=count,
                    cause=cause,
                    replaces=replaces,
                )
                for first, last, of, count, cause, replaces in batches
            ],
        )

        def answered(found: Any) -> None:
            done(known_code(found.error_code), found.error_message or "")

        self._ask(_Question(write.WriteShareGroupStateRequest, key, named, answered))

    async def initialize(
        self, group_id: str, partitions: Mapping[Partition, tuple[int, int]]
    ) -> dict[Partition, ErrorCode]:
        """Begin states: each with its (state epoch, start offset)."""
        kind = initialize.InitializeShareGroupStateRequest
        named = {
            (topic_id, index): initialize.PartitionData(
                partition=index, state_epoch=state_epoch, start_offset=start_offset
            )
            for (topic_id, index), (state_epoch, start_offset) in partitions.items()
        }
        return await self._codes(kind, group_id, named)

    async def delete(
        self, group_id: str, partitions: Collection[Partition]
    ) -> dict[Partition, ErrorCode]:
        """Forget states; NONE also where there was none."""
        kind = delete.DeleteShareGroupStateRequest
        named = {
            (topic_id, index): delete.PartitionData(partition=index)
            for topic_id, index in partitions
        }
        return await self._codes(kind, group_id, named)

    async def summary(
        self, group_id: str, partitions: Collection[Partition]
    ) -> dict[Partition, ShareSummary | ErrorCode]:
        kind = summary.ReadShareGroupStateSummaryRequest
        named = {
            (topic_id, index): summary.PartitionData(partition=index, leader_epoch=-1)
            for topic_id, index in partitions
        }
        return {
            partition: known_code(found.error_code)
            if found.error_code
            else ShareSummary(
                found.state_epoch,
                found.leader_epoch,
                found.start_offset,
                found.delivery_complete_count,
            )
            for partition, found in (await self._answers(kind, group_id, named)).items()
        }

    async def _codes(
        self, kind: type[Message], group_id: str, named: Mapping[Partition, Any]
    ) -> dict[Partition, ErrorCode]:
        answers = await self._answers(kind, group_id, named)
        return {partition: known_code(found.error_code) for partition, found in answers.items()}

    async def _answers(
        self, kind: type[Message], group_id: str, named: Mapping[Partition, Any]
    ) -> dict[Partition, Any]:
        """The element of the answer for each partition; all are asked for at the same time."""
        waiting = {
            partition: self._answer(kind, ShareKey(group_id, *partition), element)
            for partition, element in named.items()
        }
        return {partition: await answer for partition, answer in waiting.items()}

    def _answer(self, kind: type[Message], key: ShareKey, named: Any) -> asyncio.Future[Any]:
        answer = self._loop.create_future()

        def answered(found: Any) -> None:
            if not answer.done():
                answer.set_result(found)

        self._ask(_Question(kind, key, named, answered))
        return answer

    # -- whom to ask ---------------------------------------------------------------------------

    def _ask(self, question: _Question) -> None:
        if self._stopped:
            self._loop.call_soon(_refuse, question, ErrorCode.COORDINATOR_NOT_AVAILABLE, _STOPPING)
            return
        node = self._coordinator.node_of(question.key)
        if node is None:
            if not self._coordinator.has_topic and self._making is None:
                self._making = self._begin(self._make_topic())
            self._ask_again(question, ErrorCode.COORDINATOR_NOT_AVAILABLE, "it has no coordinator")
            return
        queue = self._queues.get(node)
        if queue is not None:
            queue.append(question)
            return
        self._queues[node] = [question]
        if node == self._node_id:
            self._loop.call_soon(self._serve_here)
        elif node not in self._sending:
            # The task begins after this loop turn, so that the turn's questions share requests.
            self._sending[node] = self._loop.create_task(self._send_all(node))

    def _ask_again(self, question: _Question, code: ErrorCode, why: str) -> None:
        """After a pause, unless it has been asked often enough."""
        question.attempts += 1
        if question.attempts >= ATTEMPTS_MAX or self._stopped:
            self._loop.call_soon(_refuse, question, code, why)
            return
        pause_s = min(RETRY_S_MAX, RETRY_S * 2 ** (question.attempts - 1))
        self._pausing[question] = self._loop.call_later(pause_s, self._paused, question)

    def _paused(self, question: _Question) -> None:
        del self._pausing[question]
        self._ask(question)

    async def _make_topic(self) -> None:
        try:
            code = await self._coordinator.make_topic()
        finally:
            self._making = None
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.warning("the topic of share-partitions could not be created: %s", code.name)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- this node -----------------------------------------------------------------------------

    def _serve_here(self) -> None:
        for request, batch in _requests(self._queues.pop(self._node_id, ())):
            answer = self._coordinator.serve(request, _VERSIONS[type(request)])
            if inspect.isawaitable(answer):
                self._begin(self._take_later(batch, answer))
            else:
                self._take_answer(batch, answer)

    async def _take_later(self, batch: list[_Question], answer: Awaitable[Message]) -> None:
        response = None
        try:
            response = await answer
        finally:
            # Nobody is left waiting, whatever has ended this.
            self._take_answer(batch, response)

    # -- other nodes ---------------------------------------------------------------------------

    async def _send_all(self, node: int) -> None:
        requests: list[tuple[Message, list[_Question]]] = []
        try:
            while queue := self._queues.pop(node, None):
                requests += _requests(queue)
                while requests:
                    request, batch = requests[0]
                    response = await self._send(node, request, len(batch))
                    del requests[0]
                    self._take_answer(batch, response)
        finally:
            del self._sending[node]
            for _, batch in requests:
                self._take_answer(batch, None)

    async def _send(self, node: int, request: Message, count: int) -> Message | None:
        address = self._brokers.address(node)
        if address is None:
            return None
        try:
            response: Message = await self._peers.send(
                address, Channel.SHARE_STATE, request, _VERSIONS[type(request)], ANSWER_S_MAX
            )
        except PenstockError as e:
            log.warning("%d states of share-partitions: no answer of %s: %s", count, address, e)
            return None
        return response

    def _take_answer(self, batch: list[_Question], response: Any) -> None:
        found = {
            (topic.topic_id, result.partition): result
            for topic in (() if response is None else response.results)
            for result in topic.partitions
        }
        for question in batch:
            result = found.get(question.key[1:])
            if result is None:
                # The node was not reached, or did not answer all of it.
                self._ask_again(question, ErrorCode.NETWORK_EXCEPTION, "its coordinator is silent")
            elif result.error_code and known_code(result.error_code) in _PASSING:
                self._ask_again(question, known_code(result.error_code), result.error_message or "")
            else:
                _tell(question, result)

    def end_waiting(self) -> None:
        """The node stops: nothing is asked again, and whoever waits for that is told so."""
        self._stopped = True
        waiting = [question for queue in self._queues.values() for question in queue]
        for handle in self._pausing.values():
            handle.cancel()
        waiting += self._pausing
        self._queues.clear()
        self._pausing.clear()
        for question in waiting:
            _refuse(question, ErrorCode.COORDINATOR_NOT_AVAILABLE, _STOPPING)

    async def stop(self) -> None:
        """What is under way is given up, too."""
        self.end_waiting()
        tasks = [*self._sending.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_STOPPING: Final = "this node is stopping"


def _requests(questions: Iterable[_Question]) -> Iterable[tuple[Message, list[_Question]]]:
    """The questions as requests: of one group and kind each, and not too large."""
    groups: dict[tuple[type[Message], str], list[_Question]] = {}
    for question in questions:
        groups.setdefault((question.kind, question.key.group_id), []).append(question)
    for (kind, group_id), alike in groups.items():
        for at in range(0, len(alike), PARTITIONS_PER_REQUEST_MAX):
            batch = alike[at : at + PARTITIONS_PER_REQUEST_MAX]
            topics: dict[Uuid, list[Any]] = {}
            for question in batch:
                topics.setdefault(question.key.topic_id, []).append(question.named)
            yield request_of(kind, group_id, topics), batch


def _refuse(question: _Question, code: ErrorCode, why: str) -> None:
    _tell(question, refused(question.kind, question.key.partition, code, why))


def _tell(question: _Question, result: Any) -> None:
    try:
        question.done(result)
    except Exception:
        # The answers to others are in the same response.
        log.exception("the state of %s was answered, and nobody could use it", question.key.text)
