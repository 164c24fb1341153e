"""Decisions about SCRAM credentials: set, delete; and which users have some.

A request names a user once, as in Kafka: one who is in it twice, be it with two mechanisms, is
refused and keeps what it had; others are not affected. Of a salted password only the keys made from
it are kept. An empty one is refused: everybody knows it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.auth import scram
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps
from penstock.metadata.records import MetadataRecord
from penstock.metadata.security_image import SecurityImage
from penstock.metadata.security_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""As the protocol and the records number them."""
_HASHES: Final = {1: "sha256", 2: "sha512"}
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384


def alter_credentials(
    security: SecurityImage, request: AlterUserScramCredentialsRequest
) -> Steps[tuple[list[MetadataRecord], AlterUserScramCredentialsResponse]]:
    decided: dict[str, MetadataRecord | ApiError] = {}
    alterations: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    for number, alteration in enumerate(alterations, 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        name = alteration.name
        earlier = decided.get(name)
        if isinstance(earlier, ApiError):
            continue
        try:
            if earlier is not None:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            if isinstance(alteration, ScramCredentialDeletion):
                decided[name] = _deleted(security, alteration)
            else:
                decided[name] = _set(alteration)
        except ApiError as e:
            decided[name] = e
    records = [outcome for outcome in decided.values() if not isinstance(outcome, ApiError)]
    results = [_result(name, outcome) for name, outcome in decided.items()]
    return records, AlterUserScramCredentialsResponse(results=results)


def _deleted(
    security: SecurityImage, deletion: ScramCredentialDeletion
) -> RemoveUserScramCredentialRecord:
    _check_name_and_mechanism(deletion.name, deletion.mechanism)
    if (deletion.mechanism, deletion.name) not in security.scram:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _set(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    _check_name_and_mechanism(upsertion.name, upsertion.mechanism)
    if upsertion.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not upsertion.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Empty salted password")
    stored_key, server_key = scram.keys(_HASHES[upsertion.mechanism], upsertion.salted_password)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=upsertion.salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=upsertion.iterations,
    )


def _check_name_and_mechanism(name: str, mechanism: int) -> None:
    if not name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _result(name: str, outcome: MetadataRecord | ApiError) -> AlterUserScramCredentialsResult:
    if isinstance(outcome, ApiError):
        return AlterUserScramCredentialsResult(
            user=name, error_code=outcome.code, error_message=outcome.message
        )
    return AlterUserScramCredentialsResult(user=name, error_message=None)


def describe_credentials(
    security: SecurityImage, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Of the named users, or of all if none is named; those that there are when it begins."""
    held: dict[str, list[CredentialInfo]] = {}
    for number, ((mechanism, user), credential) in enumerate(list(security.scram.items()), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        info = CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        held.setdefault(user, []).append(info)
    named = Counter(user.name for user in request.users or ())
    results = [_described(name, named[name], held.get(name)) for name in named or held]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    name: str, times: int, infos: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        why = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif infos is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        why = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(
            user=name, error_message=None, credential_infos=infos
        )
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=why)
