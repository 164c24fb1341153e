"""IncrementalAlterConfigs (44), versions 0 and 1: set, delete, append to or subtract from settings.

Every broker setting that Kafka changes while running is taken, unless it asks for security that is
not there. Unlike Kafka, an unknown broker setting is refused instead of being stored without
effect, and an unknown operation is INVALID_REQUEST instead of an unknown error.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handler(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, on_controller=True)
async def incremental_alter_configs(
    services: Services, request: Request[IncrementalAlterConfigsRequest]
) -> IncrementalAlterConfigsResponse:
    body = request.body
    try:
        return await ask(services, request, IncrementalAlterConfigsResponse)
    except ApiError as e:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=e.code,
                    error_message=e.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in body.resources
            ]
        )
