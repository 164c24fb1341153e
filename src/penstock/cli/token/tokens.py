"""The requests about delegation tokens, to any Kafka cluster, and their refusals as sentences.

A token is named by its id; the secret by which the protocol names it is looked up among the tokens
that the caller may see, so that no secret has to be typed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.auth.principal import USER
from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, reason
from penstock.cli.errors import CliError, usage_error
from penstock.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

TokenId = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]
_ADVICE: Final = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens are given to who has logged in by SASL or a certificate, and not by a token"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "for another owner that needs CREATE_TOKENS on the user"
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "it has expired",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "it is not there any more",
    ErrorCode.INVALID_PRINCIPAL_TYPE: f"owners and renewers must be {USER}:NAME",
}


class Token(NamedTuple):
    id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    expires_ms: int
    ends_ms: int
    secret: bytes

    def json(self) -> dict[str, Any]:
        """Without the secret."""
        return {
            "id": self.id,
            "owner": self.owner,
            "requester": self.requester,
            "renewers": self.renewers,
            "issued": time_text(self.issued_ms),
            "expires": time_text(self.expires_ms),
            "ends": time_text(self.ends_ms),
        }


def read(brokers: Brokers, owners: list[str] | None = None) -> list[Token]:
    """Those that the caller may see, of these owners or of all."""
    doing = "list the delegation tokens"
    named = None if owners is None else [_owner(owner) for owner in owners]
    request = DescribeDelegationTokenRequest(owners=named)
    answer = brokers.ask(request, DescribeDelegationTokenResponse, doing)
    check(answer.error_code, doing)
    found = [
        Token(
            one.token_id,
            f"{one.principal_type}:{one.principal_name}",
            f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
            [f"{r.principal_type}:{r.principal_name}" for r in one.renewers],
            one.issue_timestamp,
            one.expiry_timestamp,
            one.max_timestamp,
            bytes(one.hmac),
        )
        for one in answer.tokens
    ]
    return sorted(found)


def find(brokers: Brokers, token_id: str) -> Token:
    for token in read(brokers):
        if token.id == token_id:
            return token
    raise CliError(f"there is no token {token_id} that you may see; see `penstock token list`")


def split(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise usage_error(f"{principal!r} is no principal: write it as {USER}:NAME")
    return kind, name


def _owner(principal: str) -> DescribeDelegationTokenOwner:
    kind, name = split(principal)
    return DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)


def check(code: int, doing: str) -> None:
    if code:
        text = f"cannot {doing}: {reason(code, None)}"
        advice = _ADVICE.get(ErrorCode(code))
        raise CliError(f"{text}; {advice}" if advice else text)


def time_text(wall_ms: int) -> str:
    """`2026-11-18T12:00:00Z`; what no calendar has is the number."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(wall_ms)
