"""BrokerRegistration (62), versions 0 to 4: a broker that starts asks for its broker epoch.

The epoch is the offset of its record in the metadata log. Incarnations are told apart as in Kafka:
while another one of the same id is alive the answer is DUPLICATE_BROKER_REGISTRATION.
"""

from __future__ import annotations

from penstock.api.controller import decide
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)


@handler(BrokerRegistrationRequest, BrokerRegistrationResponse)
async def broker_registration(
    services: Services, request: Request[BrokerRegistrationRequest]
) -> BrokerRegistrationResponse:
    try:
        return await decide(services, request, BrokerRegistrationResponse)
    except ApiError as e:
        return BrokerRegistrationResponse(error_code=e.code)
