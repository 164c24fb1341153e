"""AlterConfigs (33), versions 0 to 2: replace all settings of topics and brokers.

What the request does not name goes back to its default. Settings of groups, loggers and client
metrics do not exist here and are refused.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handler(AlterConfigsRequest, AlterConfigsResponse, on_controller=True)
async def alter_configs(
    services: Services, request: Request[AlterConfigsRequest]
) -> AlterConfigsResponse:
    body = request.body
    try:
        return await ask(services, request, AlterConfigsResponse)
    except ApiError as e:
        return AlterConfigsResponse(
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
