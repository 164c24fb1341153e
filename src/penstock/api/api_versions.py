"""ApiVersions (18), versions 0 to 4.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range served,
whatever the request looked like. Produce is advertised from version 0 although versions 0
to 2 are refused, as Kafka does for librdkafka's sake. The APIs of client telemetry are advertised
only where they are served, as Kafka does.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.api.dispatcher import OF_QUORUM
from penstock.api.registry import APIS, Request, handler
from penstock.api.telemetry import software_told
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_NAME_FROM = 3
_TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
LEVEL_0_FROM = 4
"""Clients of earlier versions cannot read a feature whose lowest level is 0."""


@handler(ApiVersionsRequest, ApiVersionsResponse)
def api_versions(services: Services, request: Request[ApiVersionsRequest]) -> ApiVersionsResponse:
    if request.version < 0:
        own = APIS[ApiKey.API_VERSIONS].versions
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=18, min_version=own[0], max_version=own[-1])],
        )
    body = request.body
    if request.version >= SOFTWARE_NAME_FROM and not (
        _SOFTWARE.fullmatch(body.client_software_name)
        and _SOFTWARE.fullmatch(body.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    hidden = frozenset() if services.telemetry.active else _TELEMETRY
    if request.version >= SOFTWARE_NAME_FROM and not hidden:
        software_told(request.connection, body.client_software_name, body.client_software_version)
    features = services.cluster.features(request.principal)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=api.key,
                min_version=0 if api.key == ApiKey.PRODUCE else api.versions[0],
                max_version=api.versions[-1],
            )
            for api in sorted(APIS.values(), key=lambda api: api.key)
            if api.key not in hidden
            and (api.key in OF_QUORUM or request.listener not in services.quorum.listeners)
        ],
        supported_features=[
            SupportedFeatureKey(
                name=f.name, min_version=f.min_supported, max_version=f.max_supported
            )
            for f in features
            if f.min_supported or request.version >= LEVEL_0_FROM
        ],
        finalized_features_epoch=services.cluster.features_epoch(request.principal),
        finalized_features=[
            FinalizedFeatureKey(
                name=f.name, max_version_level=f.finalized, min_version_level=f.finalized
            )
            for f in features
            if f.finalized
        ],
    )
