"""DeleteTopics (20), versions 1 to 6: by name, from version 6 on also by id.

With `delete.topic.enable=false` every topic is refused: TOPIC_DELETION_DISABLED from version 3
on, which knows that code, INVALID_REQUEST before. The answer is given when the deletion is
committed; the disk space comes back shortly after.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

DELETION_DISABLED_FROM = 3


@handler(DeleteTopicsRequest, DeleteTopicsResponse, on_controller=True)
async def delete_topics(
    services: Services, request: Request[DeleteTopicsRequest]
) -> DeleteTopicsResponse:
    body = request.body
    try:
        return await ask(services, request, DeleteTopicsResponse)
    except ApiError as e:
        disabled = e.code == ErrorCode.TOPIC_DELETION_DISABLED
        known = not disabled or request.version >= DELETION_DISABLED_FROM
        code = e.code if known else ErrorCode.INVALID_REQUEST
        topics = [*body.topics, *(DeleteTopicState(name=name) for name in body.topic_names)]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=code,
                    error_message=e.message,
                )
                for topic in topics
            ]
        )
