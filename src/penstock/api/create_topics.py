"""CreateTopics (19), versions 2 to 7: topics with partitions, replicas and settings.

The controller decides for each topic by itself. From version 5 on the answer carries the new
topic's settings, never null (the Java admin client fails on null). Unlike Kafka, two topics of
one request whose names differ only in '.' and '_' are not both created.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


@handler(CreateTopicsRequest, CreateTopicsResponse, on_controller=True)
async def create_topics(
    services: Services, request: Request[CreateTopicsRequest]
) -> CreateTopicsResponse:
    body = request.body
    try:
        return await ask(services, request, CreateTopicsResponse)
    except ApiError as e:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=e.code, error_message=e.message)
                for topic in body.topics
            ]
        )
