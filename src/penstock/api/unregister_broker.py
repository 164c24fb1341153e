"""UnregisterBroker (64), version 0: forget a broker that will not come back.

As in Kafka a live broker can be unregistered, too; it registers again with its next start. Others
lead what it led, and its replicas stay assigned to it: move them away first.
"""

from __future__ import annotations

from penstock.api.controller import ask
from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


@handler(UnregisterBrokerRequest, UnregisterBrokerResponse, on_controller=True)
async def unregister_broker(
    services: Services, request: Request[UnregisterBrokerRequest]
) -> UnregisterBrokerResponse:
    try:
        return await ask(services, request, UnregisterBrokerResponse)
    except ApiError as e:
        return UnregisterBrokerResponse(error_code=e.code, error_message=e.message)
