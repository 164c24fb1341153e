"""The limits of delegation tokens, and their removal when they have expired."""

from __future__ import annotations

import pytest

from penstock.base.errors import ErrorCode
from penstock.metadata import token_control
from penstock.metadata.token_control import REMOVED_PER_RUN_MAX, RENEWERS_MAX
from penstock.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from unit.metadata.rig import Rig


def asked(rig: Rig, renewers: int = 0, requester: str = "User:a") -> int:
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type="User", principal_name=str(i)) for i in range(renewers)
        ]
    )
    made = rig.take(rig.controller.create_delegation_token(request, requester, rig.now_ms))
    code: int = made.error_code
    return code


def test_a_token_has_so_many_renewers() -> None:
    rig = Rig()
    assert asked(rig, RENEWERS_MAX) == ErrorCode.NONE
    assert asked(rig, RENEWERS_MAX + 1) == ErrorCode.POLICY_VIOLATION


def test_a_requester_has_so_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_control, "TOKENS_PER_REQUESTER_MAX", 2)
    rig = Rig()
    assert [asked(rig) for _ in range(3)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert asked(rig, requester="User:b") == ErrorCode.NONE
    rig.tick(10_000)
    assert asked(rig) == ErrorCode.NONE


def test_many_expired_ones_are_removed_run_by_run() -> None:
    rig = Rig()
    for _ in range(REMOVED_PER_RUN_MAX + 5):
        asked(rig)
    rig.tick(10_000)
    assert len(rig.image.security.tokens) == 5
    assert rig.controller.next_deadline_ms(rig.now_ms) == rig.now_ms
    rig.tick(0)
    assert not rig.image.security.tokens
    assert rig.controller.next_deadline_ms(rig.now_ms) is None
