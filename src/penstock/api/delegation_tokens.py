"""What the handlers of delegation tokens share: by which connections tokens may be asked for."""

from __future__ import annotations

from typing import Any, Final

from penstock.api.registry import Request
from penstock.serving.services import Services

REQUESTER_FROM: Final = 3
"""The version from which answers name who asked for a token, beside its owner."""


def check_channel(services: Services, request: Request[Any]) -> None:
    """`ApiError` DELEGATION_TOKEN_REQUEST_NOT_ALLOWED unless this connection may ask. What another
    node passes on has been checked there, but for what its principal shows.
    """
    listener = None if request.forwarded else request.listener
    services.security.require_token_channel(request.principal, listener)
