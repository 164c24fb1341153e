"""What the records of security build: images, snapshots of them, and what a delta names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.auth.types import Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import ApiError, InvariantBroken
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import decode_record, encode_record
from penstock.metadata.security_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveRoleRecord,
    RemoveUserScramCredentialRecord,
    RoleMemberRecord,
    RoleRecord,
    SecurityRecord,
)
from penstock.metadata.snapshot import snapshot_records
from unit.metadata.rig import Rig, records_of, run, security_commands

History = list[tuple[Any, ...]]
histories = st.lists(security_commands, max_size=30)


def play(rig: Rig, history: History) -> None:
    for command in history:
        with suppress(ApiError):
            run(rig, command)


def filled() -> Rig:
    """One of everything."""
    rig = Rig()
    rig.create_acl("a", 3, "User:a", 3)
    rig.create_acl("a", 4, "Role:r", 4)
    rig.set_password("a", 1, b"secret")
    rig.set_password("a", 2, b"secret")
    rig.create_token("a")
    rig.quota({"user": "a", "client-id": None}, "producer_byte_rate", 10.0)
    rig.quota({"ip": None}, "connection_creation_rate", 1.0)
    rig.create_role("r")
    rig.join_role("r", ["User:b", "User:a"])
    return rig


@settings(max_examples=100, deadline=None)
@given(histories)
def test_replay_and_snapshot_give_an_equal_image(history: History) -> None:
    rig = filled()
    play(rig, history)
    assert rig.replayed() == rig.image
    level = rig.image.metadata_version
    records = [
        decode_record(encode_record(record, level))
        for record in snapshot_records(rig.image.frozen())
    ]
    rebuilt = MetadataImage()
    rebuilt.apply(records, MetadataDelta())
    assert rebuilt == rig.image


@settings(max_examples=100, deadline=None)
@given(histories, histories)
def test_a_delta_names_what_changed(first: History, second: History) -> None:
    rig = filled()
    play(rig, first)
    lagging, follower = rig.image.copy(), rig.image.copy()
    before = rig.image.frozen().security
    start = len(rig.log)
    play(rig, second)
    told = MetadataDelta()
    follower.apply(records_of(rig)[start:], told)
    now = rig.image.security
    delta = lagging.replace_with(rig.image).security
    assert lagging == follower == rig.image
    for found in (delta, told.security):
        acls = {i: acl for i, acl in before.acls.items() if i not in found.acls_removed}
        assert acls | found.acls_added == now.acls
    assert delta.acls_added == told.security.acls_added
    assert delta.acls_removed == told.security.acls_removed
    for name in ("scram", "tokens", "quotas", "roles"):
        old, new = getattr(before, name), getattr(now, name)
        differ = {key for key in {*old, *new} if old.get(key) != new.get(key)}
        assert getattr(delta, name) == differ
        assert differ <= getattr(told.security, name)
    assert bool(delta) == (before != now.frozen())


def test_copies_and_frozen_images_stay_as_they_were() -> None:
    rig = filled()
    copy, frozen = rig.image.copy(), rig.image.frozen()
    assert copy == rig.image
    rig.delete_acls("a", 1, None)
    rig.set_password("a", 1, b"other")
    rig.delete_password("a", 2)
    rig.end_token("a")
    rig.tick(10_000)
    rig.quota({"user": "a", "client-id": None}, "producer_byte_rate", None)
    rig.delete_role("r")
    assert copy != rig.image
    assert copy.security.frozen() == frozen.security
    assert len(frozen.security.acls) == len(frozen.security.scram) == 2
    assert frozen.security.roles == {"r": {"User:a", "User:b"}}


@pytest.mark.parametrize("part", ["acls", "scram", "tokens", "quotas", "roles"])
def test_images_that_differ_in_one_part_are_not_equal(part: str) -> None:
    rig = filled()
    other = rig.image.copy()
    getattr(other.security, part).popitem()
    assert other != rig.image


ID = bytes(15) + b"\7"
READ = AccessControlEntryRecord(
    id=ID,
    resource_type=2,
    resource_name="t",
    pattern_type=3,
    principal="User:a",
    host="*",
    operation=3,
    permission_type=3,
)


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([READ, READ], "twice"),
        ([RemoveAccessControlEntryRecord(id=ID)], "missing ACL"),
        (
            [AccessControlEntryRecord(id=ID, resource_type=99, pattern_type=3, principal="User:a")],
            "not known here",
        ),
        ([RemoveUserScramCredentialRecord(name="a", mechanism=1)], "missing credential of a"),
        ([RemoveDelegationTokenRecord(token_id="i")], "missing delegation token i"),
        ([RoleRecord(name="r"), RoleRecord(name="r")], "creates role r twice"),
        ([RemoveRoleRecord(name="r")], "missing role r"),
        ([RoleMemberRecord(role="r", member="User:a")], "missing role r"),
    ],
)
def test_records_that_contradict_the_image(records: list[SecurityRecord], sentence: str) -> None:
    with pytest.raises(InvariantBroken, match=sentence):
        MetadataImage().apply(records, MetadataDelta())


def test_an_acl_that_comes_and_goes_is_in_no_delta() -> None:
    delta = MetadataDelta()
    image = MetadataImage()
    image.apply([READ], delta)
    assert delta.security.acls_added == {
        ID: Acl(
            ResourceType.TOPIC,
            "t",
            PatternType.LITERAL,
            "User:a",
            "*",
            Operation.READ,
            PermissionType.ALLOW,
        )
    }
    image.apply([RemoveAccessControlEntryRecord(id=ID)], delta)
    assert not delta
    assert image == MetadataImage()


def test_secrets_are_in_no_repr() -> None:
    rig = filled()
    [credential, _] = rig.image.security.scram.values()
    assert repr(credential) == "ScramCredential(iterations=4096)"
    made = rig.create_token("a")
    assert repr(made.hmac) not in repr(made)
    assert "key" not in repr(rig.controller._tokens._rules())
