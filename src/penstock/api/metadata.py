"""Metadata (3), versions 0 to 13: brokers, topics and partition leaders; creates topics where
allowed.

A missing topic is created when `auto.create.topics.enable` is on and the client allows it. Unlike
Kafka, which first answers UNKNOWN_TOPIC_OR_PARTITION, the answer waits for it, so clients need not
ask again. Topics can be asked for by id from version 10 on (12 for clients). Topics that a client
may not describe are left out where all are asked for, and refused by name or by id.

Topics are kept as they were encoded, until they change. When many partitions are asked for, what is
missing is encoded some at a time, with turns for others in between, and those who ask are answered
one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Final, cast

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.base.steps import Steps
from penstock.metadata.image import Partition, Topic
from penstock.metadata.names import INTERNAL_TOPICS, check_topic_name
from penstock.net.turn import Turn, in_turns
from penstock.serving.rights import NOT_ASKED_FOR
from penstock.serving.services import Services
from penstock.serving.topic_pieces import Form
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.pieces import Piece, piece_bytes

NULL_TOPICS_FROM = 1
PARTITIONS_AT_ONCE_MAX = 500
"""To encode so many takes about three milliseconds."""

_NONE_REFUSED: Final[Mapping[str, int]] = MappingProxyType({})


class _Joined(list[MetadataResponseTopic]):
    """As many topics as it says, but all of them in one piece."""

    __slots__ = ("_count",)

    def __init__(self, pieces: list[Piece]) -> None:
        data = b"".join([piece.data for piece in pieces])
        codes = tuple(code for piece in pieces for code in piece.error_codes())
        super().__init__([cast(MetadataResponseTopic, Piece(data, codes))])
        self._count = len(pieces)

    def __len__(self) -> int:
        return self._count


@handler(MetadataRequest, MetadataResponse)
def metadata(
    services: Services, request: Request[MetadataRequest]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if services.cluster.is_settled:
        return _answer(services, request)
    return _answer_when_settled(services, request)


async def _answer_when_settled(
    services: Services, request: Request[MetadataRequest]
) -> MetadataResponse:
    """A broker seems to have died just now: its partitions are about to have other leaders."""
    await services.cluster.settle(request.principal)
    answer = _answer(services, request)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _answer(
    services: Services, request: Request[MetadataRequest]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    body = request.body
    if body.topics is None or (not body.topics and request.version < NULL_TOPICS_FROM):
        if services.topics.partition_count(request.principal) <= PARTITIONS_AT_ONCE_MAX:
            return _answer_with_all(services, request)
        if services.topics.sees_all(request.principal):
            return _answer_with_many(services, request)
        return _answer_with_visible(services, request)
    if _is_wide(services, request, body.topics):
        return _answer_with_named(services, request)
    missing = _to_create(services, request, body.topics)
    if missing:
        return _create_then_answer(services, request, missing)
    return _response(services, request, [_wanted(services, t, request) for t in body.topics])


def _answer_with_all(services: Services, request: Request[MetadataRequest]) -> MetadataResponse:
    topics = [_topic(services, t, request) for t in services.topics.listed(request.principal)]
    return _response(services, request, topics)


async def _answer_with_many(
    services: Services, request: Request[MetadataRequest]
) -> MetadataResponse:
    """Encode what is missing in turns; the answer itself is of one moment."""
    async with services.topics.pieces.turn:
        # Who sees all topics may do the same with each.
        form = _form(services, request, "")
        known, turn = services.topics.pieces.all_topics(form), Turn()
        while not known.is_known:
            topics = services.topics.listed(request.principal)
            missing = [topic.name for topic in topics if topic.id not in known]
            if not missing:
                break
            for name in missing:
                made = await _listed(services, name, request)
                if made is not None:
                    known.put(*made)
                if turn.is_over:
                    await turn.next()
        return _response(services, request, known.joined(_Joined))


async def _answer_with_visible(
    services: Services, request: Request[MetadataRequest]
) -> MetadataResponse:
    """The same for a client that may not know of all: the topics are looked through in turns."""
    async with services.topics.pieces.turn:
        topics, turn = [], Turn()
        for name in services.topics.names(request.principal):
            made = await _listed(services, name, request)
            if made is not None:
                topics.append(made[1])
            if turn.is_over:
                await turn.next()
        return _response(services, request, topics)


async def _listed(
    services: Services, name: str, request: Request[MetadataRequest]
) -> tuple[Uuid, MetadataResponseTopic] | None:
    """The topic's id and its piece; None if there is none, or the client may not know of it. Who
    calls holds `pieces.turn`.
    """
    topic = services.topics.get(request.principal, name)
    if topic is None:
        return None
    piece = await _topic_in_turns(services, topic, request)
    if piece is None:
        topic = services.topics.get(request.principal, name)
        if topic is None:
            return None
        piece = _topic(services, topic, request)
    return topic.id, piece


def _is_wide(
    services: Services, request: Request[MetadataRequest], wanted: list[MetadataRequestTopic]
) -> bool:
    """Whether so much is asked for by name that it has to be answered in turns."""
    if len(wanted) > PARTITIONS_AT_ONCE_MAX:
        return True
    if services.topics.partition_count(request.principal) <= PARTITIONS_AT_ONCE_MAX:
        return False
    pieces, left = services.topics.pieces, PARTITIONS_AT_ONCE_MAX
    for topic in wanted:
        found = _find(services, topic, request, _NONE_REFUSED)
        if not isinstance(found, Topic):
            continue
        if pieces.get(found.id, _form(services, request, found.name)) is None:
            left -= len(found.partitions)
    return left < 0


async def _answer_with_named(
    services: Services, request: Request[MetadataRequest]
) -> MetadataResponse:
    """Many topics or partitions by name, some at a time."""
    wanted, refused = request.body.topics or [], {}
    missing = _to_create(services, request, wanted)
    if missing:
        refused = await services.topics.create(request.principal, missing, request.client_id)
    async with services.topics.pieces.turn:
        topics, turn = [], Turn()
        for topic in wanted:
            found = _find(services, topic, request, refused)
            if isinstance(found, Topic):
                piece = await _topic_in_turns(services, found, request)
                found = piece or _wanted(services, topic, request, refused)
            topics.append(found)
            if turn.is_over:
                await turn.next()
        return _response(services, request, topics)


def _to_create(
    services: Services, request: Request[MetadataRequest], wanted: list[MetadataRequestTopic]
) -> list[str]:
    if not (services.topics.auto_create and request.body.allow_auto_topic_creation):
        return []
    names = (topic.name for topic in wanted if topic.name is not None)
    return services.topics.missing(request.principal, names)


async def _create_then_answer(
    services: Services, request: Request[MetadataRequest], missing: list[str]
) -> MetadataResponse:
    refused = await services.topics.create(request.principal, missing, request.client_id)
    topics = [_wanted(services, topic, request, refused) for topic in request.body.topics or ()]
    return _response(services, request, topics)


def _wanted(
    services: Services,
    wanted: MetadataRequestTopic,
    request: Request[MetadataRequest],
    refused: Mapping[str, int] = _NONE_REFUSED,
) -> MetadataResponseTopic:
    found = _find(services, wanted, request, refused)
    return _topic(services, found, request) if isinstance(found, Topic) else found


def _find(
    services: Services,
    wanted: MetadataRequestTopic,
    request: Request[MetadataRequest],
    refused: Mapping[str, int],
) -> Topic | MetadataResponseTopic:
    """The topic, or the answer that says why there is none; `refused` are those that could not be
    created.
    """
    by_id = wanted.topic_id != ZERO_UUID
    try:
        if wanted.name is None and not by_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return services.topics.find(
            request.principal, wanted.topic_id if by_id else wanted.name or ""
        )
    except ApiError as e:
        code = int(e.code)
        if not by_id and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            name = wanted.name or ""
            legal = code if _legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            code = refused.get(name, legal)
            if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                code = legal  # the client comes again, as for a topic that is being made
        return MetadataResponseTopic(error_code=code, name=wanted.name, topic_id=wanted.topic_id)


def _legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def _topic(
    services: Services, topic: Topic, request: Request[MetadataRequest]
) -> MetadataResponseTopic:
    """The topic as an answer tells it, encoded."""
    form = _form(services, request, topic.name)
    piece: MetadataResponseTopic | None = services.topics.pieces.get(topic.id, form)
    if piece is None:
        partitions = [
            _partition(services, index, partition, request)
            for index, partition in enumerate(topic.partitions)
        ]
        told = _told(topic, form, partitions)
        piece = MetadataResponse.piece(told, request.version)
        services.topics.pieces.put(topic.id, form, piece, piece_bytes(piece))
    return piece


async def _topic_in_turns(
    services: Services, topic: Topic, request: Request[MetadataRequest]
) -> MetadataResponseTopic | None:
    """The same, if it has many partitions with turns for others; None if it has changed meanwhile.
    Who calls holds `pieces.turn`, and does it at once then: it may change again.
    """
    pieces, form = services.topics.pieces, _form(services, request, topic.name)
    if len(topic.partitions) <= PARTITIONS_AT_ONCE_MAX or pieces.get(topic.id, form) is not None:
        return _topic(services, topic, request)
    pieces.begin(topic.id)
    piece = await in_turns(_piece_steps(services, topic, request, form))
    if not pieces.end(topic.id):
        return None
    if pieces.get(topic.id, form) is None:
        pieces.put(topic.id, form, piece, piece_bytes(piece))
    return piece


def _piece_steps(
    services: Services, topic: Topic, request: Request[MetadataRequest], form: Form
) -> Steps[MetadataResponseTopic]:
    told = _told(topic, form, [])
    for index, partition in enumerate(list(topic.partitions)):
        told.partitions.append(_partition(services, index, partition, request))
        yield
    return (yield from MetadataResponse.piece_in_steps(told, request.version))


def _form(services: Services, request: Request[MetadataRequest], name: str) -> Form:
    if not request.body.include_topic_authorized_operations:
        return request.version, NOT_ASKED_FOR
    return request.version, services.topics.operations(request.principal, name)


def _told(
    topic: Topic, form: Form, partitions: list[MetadataResponsePartition]
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=form[1],
    )


def _partition(
    services: Services, index: int, partition: Partition, request: Request[MetadataRequest]
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0 if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=services.cluster.offline(request.principal, partition.replicas),
    )


def _response(
    services: Services, request: Request[MetadataRequest], topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack)
            for n in services.cluster.live_nodes(request.principal, request.listener)
        ],
        cluster_id=services.cluster.id,
        controller_id=services.cluster.controller_id(request.principal, request.listener),
        topics=topics,
    )
    if request.body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = services.cluster.operations(request.principal)
    return response
