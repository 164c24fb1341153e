"""Decisions about delegation tokens (KIP-48): make, renew, expire; and which there are.

A token stands for its owner until it expires; it can be renewed up to its end. Who may manage it
are its owner and its renewers. Whether a request for tokens may be made at all, over this
connection and for another owner, is decided before. Expired tokens are removed every
`delegation.token.expiry.check.interval.ms`, `REMOVED_PER_RUN_MAX` at a time.

Unlike all else that the controller decides, this goes by the time of day (`wall_ms`): the times are
in the tokens, and every node has to judge them. Records do not have a token's secret: each node
makes it from the id with `delegation.token.secret.key`. Without that key there are no tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.auth.delegation_tokens import token_hmac
from penstock.auth.principal import USER
from penstock.base.clock import Rng
from penstock.base.errors import ErrorCode
from penstock.base.ids import uuid_text
from penstock.base.steps import Steps
from penstock.config.broker_config import BrokerConfig
from penstock.metadata.records import MetadataRecord
from penstock.metadata.security_image import DelegationToken, SecurityImage, token_record
from penstock.metadata.security_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.wire.messages import describe_delegation_token as describing
from penstock.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.wire.schema import INT64_MAX

REMOVED_PER_RUN_MAX: Final = 1_000
RENEWERS_MAX: Final = 100
TOKENS_PER_REQUESTER_MAX: Final = 10_000
"""Anybody may ask for tokens of their own: so many at a time."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The settings `delegation.token.*`."""

    secret_key: bytes | None = field(default=None, repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000
    expiry_check_interval_ms: int = 3_600_000

    @classmethod
    def of(cls, config: BrokerConfig) -> TokenRules:
        return cls(
            config.token_secret_key,
            config.delegation_token_max_lifetime_ms,
            config.delegation_token_expiry_time_ms,
            config.delegation_token_expiry_check_interval_ms,
        )


class TokenControl:
    def __init__(
        self, security: SecurityImage, rules: Callable[[], TokenRules], rng: Rng, now_ms: int
    ) -> None:
        self._security = security
        self._rules = rules
        self._rng = rng
        self._check_due_ms = now_ms
        self._by_hmac: dict[bytes, str] | None = None
        """The ids, once somebody has asked for a token by its secret."""

    def noticed(self, record: MetadataRecord) -> None:
        """A record was taken into the image."""
        secret_key = self._rules().secret_key
        if self._by_hmac is None or secret_key is None:
            return
        if isinstance(record, DelegationTokenRecord):
            self._by_hmac[token_hmac(secret_key, record.token_id)] = record.token_id
        elif isinstance(record, RemoveDelegationTokenRecord):
            self._by_hmac.pop(token_hmac(secret_key, record.token_id), None)

    # -- requests ------------------------------------------------------------------------------

    def create(
        self, request: CreateDelegationTokenRequest, requester: str, wall_ms: int
    ) -> tuple[list[MetadataRecord], CreateDelegationTokenResponse]:
        rules = self._rules()
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        response = _unmade(owner, requester)
        if rules.secret_key is None:
            response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            return [], response
        response.error_code = self._refusal(request, owner, requester)
        if response.error_code:
            return [], response
        lifetime_ms = rules.max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        max_ms = _sum(wall_ms, lifetime_ms)
        token = DelegationToken(
            uuid_text(self._rng.uuid()),
            owner,
            requester,
            tuple(f"{r.principal_type}:{r.principal_name}" for r in request.renewers),
            wall_ms,
            max_ms,
            min(max_ms, _sum(wall_ms, rules.expiry_time_ms)),
        )
        response.issue_timestamp_ms = token.issue_ms
        response.expiry_timestamp_ms = token.expiry_ms
        response.max_timestamp_ms = token.max_ms
        response.token_id = token.id
        response.hmac = token_hmac(rules.secret_key, token.id)
        return [token_record(token)], response

    def _refusal(
        self, request: CreateDelegationTokenRequest, owner: str, requester: str
    ) -> ErrorCode:
        if _split(owner)[0] != USER or any(r.principal_type != USER for r in request.renewers):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
        held = sum(token.requester == requester for token in self._security.tokens.values())
        if held >= TOKENS_PER_REQUESTER_MAX or len(request.renewers) > RENEWERS_MAX:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def renew(
        self, request: RenewDelegationTokenRequest, principal: str, wall_ms: int
    ) -> tuple[list[MetadataRecord], RenewDelegationTokenResponse]:
        found = self._found(request.hmac)
        if isinstance(found, ErrorCode):
            return [], RenewDelegationTokenResponse(error_code=found)
        if found.expired(wall_ms):
            return [], RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
        if not found.manageable_by(principal):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            return [], RenewDelegationTokenResponse(error_code=code)
        period_ms = self._rules().expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        expiry_ms = min(found.max_ms, _sum(wall_ms, period_ms))
        record = token_record(found._replace(expiry_ms=expiry_ms))
        return [record], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)

    def expire(
        self, request: ExpireDelegationTokenRequest, principal: str, wall_ms: int
    ) -> tuple[list[MetadataRecord], ExpireDelegationTokenResponse]:
        found = self._found(request.hmac)
        if isinstance(found, ErrorCode):
            return [], ExpireDelegationTokenResponse(error_code=found)
        if not found.manageable_by(principal):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            return [], ExpireDelegationTokenResponse(error_code=code)
        if request.expiry_time_period_ms < 0:  # at once
            gone = RemoveDelegationTokenRecord(token_id=found.id)
            return [gone], ExpireDelegationTokenResponse(expiry_timestamp_ms=wall_ms)
        if found.expired(wall_ms):
            return [], ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
        expiry_ms = min(found.max_ms, _sum(wall_ms, request.expiry_time_period_ms))
        record = token_record(found._replace(expiry_ms=expiry_ms))
        return [record], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)

    def _found(self, hmac: bytes) -> DelegationToken | ErrorCode:
        secret_key = self._rules().secret_key
        if secret_key is None:
            return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        if self._by_hmac is None:
            self._by_hmac = {token_hmac(secret_key, id_): id_ for id_ in self._security.tokens}
        id_ = self._by_hmac.get(hmac)
        if id_ is None:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        return self._security.tokens[id_]

    # -- time ----------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """When to look for expired tokens next; None while there are no tokens."""
        return self._check_due_ms if self._security.tokens else None

    def run(self, now_ms: int, wall_ms: int) -> list[MetadataRecord]:
        if now_ms < self._check_due_ms or not self._security.tokens:
            return []
        expired = [t.id for t in self._security.tokens.values() if t.expired(wall_ms)]
        if len(expired) <= REMOVED_PER_RUN_MAX:
            self._check_due_ms = now_ms + self._rules().expiry_check_interval_ms
        return [RemoveDelegationTokenRecord(token_id=id_) for id_ in expired[:REMOVED_PER_RUN_MAX]]


def describe_tokens(
    security: SecurityImage,
    rules: TokenRules,
    request: describing.DescribeDelegationTokenRequest,
    principal: str,
    may_describe: Callable[[DelegationToken], bool],
) -> Steps[describing.DescribeDelegationTokenResponse]:
    """Those of the named owners, or all, that `principal` may see: its own, and those that
    `may_describe` says; as they are when it begins.
    """
    secret_key = rules.secret_key
    if secret_key is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return describing.DescribeDelegationTokenResponse(error_code=code)
    named = None
    if request.owners is not None:
        named = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    tokens = []
    for number, token in enumerate(list(security.tokens.values()), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        concerned = {token.owner, token.requester, *token.renewers}
        if named is not None and not named & concerned:
            continue
        if principal in concerned or may_describe(token):
            tokens.append(_described(token, token_hmac(secret_key, token.id)))
    return describing.DescribeDelegationTokenResponse(tokens=tokens)


def _described(token: DelegationToken, hmac: bytes) -> describing.DescribedDelegationToken:
    owner_type, owner = _split(token.owner)
    requester_type, requester = _split(token.requester)
    return describing.DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[
            describing.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(_split, token.renewers)
        ],
    )


def _unmade(owner: str, requester: str) -> CreateDelegationTokenResponse:
    owner_type, owner_name = _split(owner)
    requester_type, requester_name = _split(requester)
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _sum(wall_ms: int, duration_ms: int) -> int:
    return min(wall_ms + duration_ms, INT64_MAX)
