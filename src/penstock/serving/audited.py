"""Publishing and consuming with an eye on them, for a node that audits these.

They stand before the services of the same name only where their category is on; elsewhere nothing
is added to the way of a message. What is read of the audit log itself is not an event: it would
have itself to tell of for ever. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from penstock.base.errors import ApiError
from penstock.base.ids import TopicKey
from penstock.base.results import PartitionAnswer, PartitionData
from penstock.config.broker_audit import CONSUME, PUBLISH
from penstock.metadata.image import MetadataImage
from penstock.metadata.names import AUDIT_TOPIC
from penstock.serving.append import AUDIT_OF_NODE, AppendRequest, AppendResult
from penstock.serving.audit_log import AuditLog
from penstock.serving.read_in_flight import ReadInFlight, ReadRequest, ReadResult

Append: TypeAlias = Callable[[AppendRequest, Callable[[AppendResult], None]], None]
Read: TypeAlias = Callable[[ReadRequest, Callable[[ReadResult], None]], ReadInFlight | None]


def audited_append(append: Append, audit: AuditLog, image: MetadataImage) -> Append:
    def audited(request: AppendRequest, done: Callable[[AppendResult], None]) -> None:
        if (request.transactional_id or "").startswith(AUDIT_OF_NODE):
            append(request, done)  # it is the log itself
            return
        try:
            audit.require(PUBLISH, request.principal)
        except ApiError as e:
            done(_refused(request, e))
            return
        principal = request.principal

        def told(result: AppendResult) -> None:
            for topic, answers in result.topics:
                failed = any(answer.error_code for answer in answers)
                audit.used(PUBLISH, principal, _name(image, topic), failed=failed)
            done(result)

        append(request, told)

    return audited


def audited_read(read: Read, audit: AuditLog, image: MetadataImage) -> Read:
    def audited(request: ReadRequest, done: Callable[[ReadResult], None]) -> ReadInFlight | None:
        if request.params.is_follower:
            return read(request, done)
        try:
            audit.require(CONSUME, request.principal)
        except ApiError as e:
            done(_unread(request, e))
            return None
        principal = request.principal

        def told(result: ReadResult) -> None:
            for topic, partitions in result.topics:
                name = _name(image, topic)
                if name != AUDIT_TOPIC and any(len(found.records) for found in partitions):
                    audit.used(CONSUME, principal, name, failed=False)
            done(result)

        return read(request, told)

    return audited


def _refused(request: AppendRequest, error: ApiError) -> AppendResult:
    result = AppendResult()
    result.failed = True
    for topic, partitions in request.topics:
        answers = [
            PartitionAnswer(index, error.code, error_message=error.message)
            for index, _ in partitions
        ]
        result.topics.append((topic, answers))
    request.topics = []
    return result


def _unread(request: ReadRequest, error: ApiError) -> ReadResult:
    result = ReadResult()
    for wanted in request.context.to_check():
        result.topics.append((wanted.topic, [PartitionData(wanted.index, error.code)]))
        result.error_codes.append(error.code)
    return result


def _name(image: MetadataImage, topic: TopicKey) -> str:
    if isinstance(topic, str):
        return topic
    found = image.topics_by_id.get(topic)
    return "" if found is None else found.name
