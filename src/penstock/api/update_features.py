"""UpdateFeatures (57), versions 0 to 2: finalise the level of features for the whole cluster.

A request is done as a whole or not at all, and every registered broker must support what it asks
for. Unlike Kafka, a downgrade is granted where nothing is lost by it.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


@handler(UpdateFeaturesRequest, UpdateFeaturesResponse, on_controller=True)
async def update_features(
    services: Services, request: Request[UpdateFeaturesRequest]
) -> UpdateFeaturesResponse:
    try:
        return await ask(services, request, UpdateFeaturesResponse)
    except ApiError as e:
        return UpdateFeaturesResponse(error_code=e.code, error_message=e.message)
