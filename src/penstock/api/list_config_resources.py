"""ListConfigResources (74), versions 0 and 1: what DescribeConfigs can be asked about.

Version 0 lists subscriptions to clients' metrics only. Topics and brokers have settings here, and
those groups that have some of their own; the other types that Kafka knows are answered with
nothing, unknown types with UNSUPPORTED_VERSION as Kafka does.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.image import ResourceType
from penstock.serving.services import Services
from penstock.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TYPES_FROM = 1
_KNOWN = frozenset(ResourceType)


@handler(ListConfigResourcesRequest, ListConfigResourcesResponse)
def list_config_resources(
    services: Services, request: Request[ListConfigResourcesRequest]
) -> ListConfigResourcesResponse:
    try:
        names = services.settings.resources(request.principal)
    except ApiError as e:
        return ListConfigResourcesResponse(error_code=e.code)
    types = set(request.body.resource_types) or _KNOWN
    if request.version < TYPES_FROM:
        types = {ResourceType.CLIENT_METRICS}
    if not types <= _KNOWN:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in names.get(kind, ())
        ]
    )
