"""Delegation tokens through the real dispatcher: by which connections, for whom, which versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.auth.principal import Principal, anonymous
from penstock.base.errors import ErrorCode
from penstock.wire.messages import describe_delegation_token as describing
from penstock.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from unit.api.test_rights_of_every_api import as_principal, secured
from unit.net.served import run
from unit.serving.rig import Rig, running, until

ANN, BOB = (Principal("User", name, "127.0.0.1") for name in ("ann", "bob"))
BY_TOKEN = Principal("User", "ann", "127.0.0.1", token_authenticated=True)
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
REQUESTS = [
    (CreateDelegationTokenRequest(), (1, 3)),
    (RenewDelegationTokenRequest(hmac=b"x"), (1, 2)),
    (ExpireDelegationTokenRequest(hmac=b"x"), (1, 2)),
    (describing.DescribeDelegationTokenRequest(owners=None), (1, 3)),
]


async def tokens_of(rig: Rig, principal: Principal, version: int = 3) -> list[Any]:
    peer = await as_principal(rig, principal)
    answer = await peer.call(describing.DescribeDelegationTokenRequest(owners=None), version)
    assert answer.error_code == 0
    return list(answer.tokens)


@pytest.mark.parametrize(("request_", "versions"), REQUESTS)
def test_whoever_came_by_a_token_is_given_none(
    tmp_path: Path, request_: Any, versions: tuple[int, int]
) -> None:
    async def test() -> None:
        async with secured(tmp_path) as rig:
            peer = await as_principal(rig, BY_TOKEN)
            for version in range(versions[0], versions[1] + 1):
                assert (await peer.call(request_, version)).error_code == NOT_ALLOWED

    run(test)


@pytest.mark.parametrize(("request_", "versions"), REQUESTS)
def test_without_a_login_there_are_none(
    tmp_path: Path, request_: Any, versions: tuple[int, int]
) -> None:
    async def test() -> None:
        async with running(tmp_path, delegation_token_secret_key="the secret") as rig:
            peer = await rig.peer()
            assert (await peer.call(request_, versions[1])).error_code == NOT_ALLOWED

    run(test)


@pytest.mark.parametrize(
    ("protocol", "principal", "allowed"),
    [
        ("PLAINTEXT", ANN, False),
        ("SSL", anonymous("127.0.0.1"), False),
        ("SSL", ANN, True),
        ("SSL", BY_TOKEN, False),
        ("SASL_PLAINTEXT", ANN, True),
        ("SASL_SSL", BY_TOKEN, False),
    ],
)
def test_by_which_channel(
    tmp_path: Path, protocol: str, principal: Principal, allowed: bool
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            check = rig.broker.services.security.require_token_channel
            if allowed:
                check(principal, protocol)
            else:
                with pytest.raises(Exception, match="tokens are given to") as refused:
                    check(principal, protocol)
                assert getattr(refused.value, "code", None) == NOT_ALLOWED

    run(test)


@pytest.mark.parametrize(("request_", "versions"), REQUESTS)
def test_without_a_secret_key_there_are_none(
    tmp_path: Path, request_: Any, versions: tuple[int, int]
) -> None:
    async def test() -> None:
        async with secured(tmp_path, delegation_token_secret_key="") as rig:
            peer = await as_principal(rig, ANN)
            answer = await peer.call(request_, versions[1])
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    run(test)


def test_the_life_of_a_token(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as rig:
            ann, bob = await as_principal(rig, ANN), await as_principal(rig, BOB)
            renewer = CreatableRenewers(principal_type="User", principal_name="ray")
            made = await ann.call(CreateDelegationTokenRequest(renewers=[renewer]), 1)
            assert (made.error_code, made.principal_name) == (0, "ann")
            for version in (1, 2, 3):
                [seen] = await tokens_of(rig, ANN, version)
                assert (seen.token_id, seen.hmac) == (made.token_id, made.hmac)
                assert seen.token_requester_principal_name == ("ann" if version == 3 else "")
                assert await tokens_of(rig, BOB, version) == []
            renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000)
            mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            assert (await bob.call(renewal, 2)).error_code == mismatch
            ray = await as_principal(rig, Principal("User", "ray"))
            assert (await ray.call(renewal, 2)).error_code == 0
            ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
            assert (await bob.call(ending, 2)).error_code == mismatch
            assert (await ann.call(ending, 2)).error_code == 0
            assert await tokens_of(rig, ANN) == []

    run(test)


def test_a_token_of_another_one_needs_a_right(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as rig:
            request = CreateDelegationTokenRequest(
                owner_principal_type="User", owner_principal_name="ann"
            )
            refused = await (await as_principal(rig, BOB)).call(request, 3)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert (refused.principal_name, refused.token_requester_principal_name) == (
                "ann",
                "bob",
            )
            root = await as_principal(rig, Principal("User", "root"))
            assert (await root.call(request, 3)).error_code == 0
            [seen] = await tokens_of(rig, ANN)
            assert seen.token_requester_principal_name == "root"

    run(test)


def test_what_has_expired_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        limits = {
            "delegation_token_expiry_time_ms": "1",
            "delegation_token_expiry_check_interval_ms": "20",
        }
        async with secured(tmp_path, **limits) as rig:
            ann = await as_principal(rig, ANN)
            assert (await ann.call(CreateDelegationTokenRequest(), 3)).error_code == 0
            await until(lambda: not rig.broker.metadata.security.tokens)

    run(test)
