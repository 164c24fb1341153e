"""CreatePartitions (37), versions 0 to 3: raise topics' partition counts, never lower them."""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


@handler(CreatePartitionsRequest, CreatePartitionsResponse, on_controller=True)
async def create_partitions(
    services: Services, request: Request[CreatePartitionsRequest]
) -> CreatePartitionsResponse:
    body = request.body
    try:
        return await ask(services, request, CreatePartitionsResponse)
    except ApiError as e:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=e.code, error_message=e.message
                )
                for topic in body.topics
            ]
        )
