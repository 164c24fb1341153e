"""What is decided about security goes through the real driver: asked for, committed, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.auth.principal import Principal
from penstock.base.clock import SystemClock
from penstock.base.errors import ApiError, ErrorCode
from penstock.controlling.controller_access import ControllerAccess
from penstock.metadata.token_control import TokenRules
from penstock.wire.messages import alter_client_quotas as quotas
from penstock.wire.messages import alter_user_scram_credentials as scram
from penstock.wire.messages import create_acls, delete_acls
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from unit.controlling.test_quorum_driver import Metadata
from unit.net.served import run

ACL = create_acls.AclCreation(
    resource_type=2,
    resource_name="t",
    principal="User:a",
    host="*",
    operation=3,
    permission_type=3,
)
PASSWORD = scram.ScramCredentialUpsertion(
    name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
)
QUOTA = quotas.RequestEntryData(
    entity=[quotas.EntityData(entity_type="user", entity_name="a")],
    ops=[quotas.OpData(key="producer_byte_rate", value=5.0)],
)
EVERY = delete_acls.DeleteAclsFilter(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


def test_what_is_decided_is_committed_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata = await Metadata(tmp_path).begin()
        ask = ControllerAccess(metadata.driver, metadata.peers).ask
        await ask(create_acls.CreateAclsRequest(creations=[ACL, ACL]))
        await ask(scram.AlterUserScramCredentialsRequest(upsertions=[PASSWORD]))
        await ask(quotas.AlterClientQuotasRequest(entries=[QUOTA]))
        await metadata.submit(lambda c: c.create_role("r", ["User:a"]))
        security = metadata.committed.security
        assert [acl.principal for acl in security.acls.values()] == ["User:a"]
        assert list(security.scram) == [(1, "a")]
        assert security.quotas == {(("user", "a"),): {"producer_byte_rate": 5.0}}
        assert security.roles == {"r": {"User:a"}}
        named = metadata.deltas[-4:]
        assert named[0].security.acls_added == security.acls
        assert named[1].security.scram == {(1, "a")}
        assert named[2].security.quotas == {(("user", "a"),)}
        assert named[3].security.roles == {"r"}
        before = metadata.committed.copy()
        metadata.crash()

        metadata = await Metadata(tmp_path).begin()
        assert metadata.committed.security == before.security
        await metadata.driver._writing._write_one()
        ask = ControllerAccess(metadata.driver, metadata.peers).ask
        answer = await ask(delete_acls.DeleteAclsRequest(filters=[EVERY]))
        assert len(answer.filter_results[0].matching_acls) == 1
        before = metadata.committed.copy()
        metadata.crash()

        metadata = await Metadata(tmp_path).begin()
        assert metadata.committed.security == before.security
        assert not metadata.committed.security.acls
        metadata.stop()

    run(scenario)


def test_tokens_go_by_the_principal_and_the_time_of_day(tmp_path: Path) -> None:
    async def scenario() -> None:
        metadata = await Metadata(tmp_path).begin()
        driver = metadata.driver
        ask = ControllerAccess(driver, metadata.peers).ask
        refused = await ask(CreateDelegationTokenRequest(), principal=Principal("User", "a"))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        driver.seat.tokens = TokenRules(b"key")
        now_ms = SystemClock().now_ms
        start_ms = now_ms()
        made = await ask(CreateDelegationTokenRequest(), principal=Principal("User", "a"))
        assert (made.error_code, made.principal_name) == (0, "a")
        assert start_ms <= made.issue_timestamp_ms <= now_ms()
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000)
        other = await ask(renewal, principal=Principal("User", "b"))
        assert other.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        renewed = await ask(renewal, principal=Principal("User", "a"))
        assert start_ms + 60_000 <= renewed.expiry_timestamp_ms <= now_ms() + 60_000
        with pytest.raises(ApiError, match="names its principal"):
            await ask(renewal)
        ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        assert (await ask(ending, principal=Principal("User", "a"))).expiry_timestamp_ms >= start_ms
        assert not metadata.committed.security.tokens
        metadata.stop()

    run(scenario)
