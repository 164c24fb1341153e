"""Rights request by request: what is refused, with which code, and what is left out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.api import metadata as metadata_api
from penstock.auth.authorizer import Authorizer
from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.broker_config import broker_config
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.config.table import ConfigError
from penstock.metadata.image import MetadataImage
from penstock.metadata.security_records import ROLES_VERSION
from penstock.node.node import Node
from penstock.serving.controller_rights import ControllerRights
from penstock.serving.rights import NOT_ASKED_FOR, Rights
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from support.rights_rows import (
    ALL_TOPICS,
    CLUSTER_DENIED,
    ROWS,
    TOPIC_DENIED,
    USERS,
    WORLD,
    Row,
    codes,
)
from unit.net.served import run
from unit.serving.cluster_rig import nodes
from unit.serving.rig import Peer, Rig, running

HOST = "127.0.0.1"
ACLS = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:root"}
SECONDS_MAX = 20.0
TOPIC_ALREADY_EXISTS = 36


async def allow(rig: Rig, user: str, rules: str) -> None:
    """Gives rights, as rows of `rights_rows` write them."""
    row = Row("", rules, 0, lambda _: None, [])
    root = await as_user(rig, "root")
    answer = await root.call(CreateAclsRequest(creations=row.creations(user)), 3)
    assert codes(answer) == []


async def seen(peer: Peer, **how: bool) -> dict[str, int]:
    """All topics that are shown, and what is said may be done with them."""
    answer = await peer.call(MetadataRequest(topics=None, **how), 9)
    return {topic.name: topic.topic_authorized_operations for topic in answer.topics}


async def as_user(rig: Rig, name: str) -> Peer:
    peer = await rig.peer()
    peer.inside.principal = Principal("User", name, HOST)
    return peer


async def make_world(rig: Rig) -> dict[str, bytes]:
    """The ids of its topics."""
    root = await as_user(rig, "root")
    for request, version in WORLD:
        while codes(await root.call(request, version)):
            await asyncio.sleep(0.01)
    return {topic.name: topic.topic_id for topic in (await root.call(ALL_TOPICS, 12)).topics}


def test_what_each_row_needs(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable="true", **ACLS) as rig:
            ids = await make_world(rig)
            apart = []
            for row in ROWS:
                peer = await as_user(rig, USERS[row.label])
                answer = await peer.call(row.request(ids), row.version)
                peer.close()
                if codes(answer) != row.codes:
                    apart.append(f"{row.label}: {codes(answer)}, not {row.codes}: {answer}")
            assert not apart, "\n".join(apart)

    run(test)


def test_a_node_sees_all_groups_and_where_they_are(tmp_path: Path) -> None:
    """Else what a hidden group has not consumed could be deleted."""

    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable="true", **ACLS) as rig:
            await make_world(rig)
            await allow(rig, "node", "CLUSTER_ACTION cluster")
            topics = [OffsetFetchRequestTopics(name="there", partition_indexes=[0])]
            group = OffsetFetchRequestGroup(group_id="there", topics=topics)
            offsets = OffsetFetchRequest(groups=[group])
            for name, listed, denied in (
                ("node", ["modern", "there"], []),
                ("nobody", [], [ErrorCode.GROUP_AUTHORIZATION_FAILED]),
            ):
                peer = await as_user(rig, name)
                found = await peer.call(ListGroupsRequest(), 5)
                assert sorted(group.group_id for group in found.groups) == listed
                assert codes(await peer.call(offsets, 9)) == denied

    run(test)


@pytest.mark.parametrize("at_once_max", [0, 500])
def test_nobody_is_told_what_another_may_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once_max: int
) -> None:
    monkeypatch.setattr(metadata_api, "PARTITIONS_AT_ONCE_MAX", at_once_max)

    async def test() -> None:
        async with running(tmp_path, **ACLS) as rig:
            for name in ("a", "b", "c"):
                await rig.topic(name, 2)
            await allow(rig, "reader", "READ topic a, READ topic b")
            await allow(rig, "writer", "WRITE topic b")
            reader, writer = await as_user(rig, "reader"), await as_user(rig, "writer")
            root, nobody = await as_user(rig, "root"), await as_user(rig, "nobody")
            reads = 1 << Operation.READ | 1 << Operation.DESCRIBE
            writes = 1 << Operation.WRITE | 1 << Operation.DESCRIBE
            wished = {"include_topic_authorized_operations": True}
            for _ in range(2):  # the second time of what is kept
                everything = await seen(root, **wished)
                assert list(everything) == ["a", "b", "c"]
                assert len(set(everything.values())) == 1
                assert await seen(reader, **wished) == {"a": reads, "b": reads}
                assert await seen(writer, **wished) == {"b": writes}
                assert await seen(writer) == {"b": NOT_ASKED_FOR}
                assert await seen(nobody, **wished) == {}
                assert len(await seen(root)) == 3

    run(test)


def test_acls_hold_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **ACLS) as rig:
            topic = await rig.topic("t")
            ann = await as_user(rig, "ann")
            assert (await ann.produce(topic)).error_code == TOPIC_DENIED
            await allow(rig, "ann", "WRITE topic t")
            assert (await ann.produce(topic)).error_code == 0
        async with running(tmp_path, **ACLS) as rig:
            ann, root = await as_user(rig, "ann"), await as_user(rig, "root")
            assert (await ann.produce(topic)).error_code == 0
            every = DeleteAclsFilter(
                resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                principal_filter=None, host_filter=None, operation=1, permission_type=1,
            )  # fmt: skip
            assert codes(await root.call(DeleteAclsRequest(filters=[every]), 3)) == []
            assert (await ann.produce(topic)).error_code == TOPIC_DENIED
            assert (await ann.fetch(topic)).error_code == TOPIC_DENIED

    run(test)


def test_members_of_a_role_have_its_rights(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **ACLS) as rig:
            topic = await rig.topic("t")
            controller, ann = rig.broker.controller, await as_user(rig, "ann")
            use_roles = FeatureUpdateKey(feature=ROLES_VERSION, max_version_level=1, upgrade_type=1)
            raised = await controller.ask(UpdateFeaturesRequest(feature_updates=[use_roles]))
            assert codes(raised) == []
            await allow(rig, "ann", "DESCRIBE topic t")
            rule = Row("", "WRITE topic t", 0, lambda _: None, []).creations("")[0]
            rule.principal = "Role:writers"
            assert codes(await controller.ask(CreateAclsRequest(creations=[rule]))) == []
            assert (await ann.produce(topic)).error_code == TOPIC_DENIED
            await controller.submit(lambda c: c.create_role("writers", ["User:ann", "User:bob"]))
            assert (await ann.produce(topic)).error_code == 0
            await controller.submit(lambda c: c.remove_role_members("writers", ["User:ann"]))
            assert (await ann.produce(topic)).error_code == TOPIC_DENIED

    run(test)


def test_what_is_allowed_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    find = Authorizer._find

    def counted(self: Authorizer, principal: Principal, *about: str) -> int:
        found.append(about[1])
        return find(self, principal, *about)  # type: ignore[arg-type]

    monkeypatch.setattr(Authorizer, "_find", counted)

    async def test() -> None:
        async with running(tmp_path, **ACLS) as rig:
            topic = await rig.topic("t")
            await allow(rig, "ann", "WRITE topic t, READ topic t")
            ann = await as_user(rig, "ann")
            found.clear()
            for _ in range(3):
                assert (await ann.produce(topic)).error_code == 0
                assert (await ann.fetch(topic)).error_code == 0
            assert found == ["t"]

    run(test)


def test_a_pattern_finds_only_topics_that_the_member_may_know(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **ACLS) as rig:
            made = {name: (await rig.topic(name)).id for name in ("t-1", "t-2")}
            root, ann = await as_user(rig, "root"), await as_user(rig, "ann")
            await root.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            await allow(rig, "ann", "READ group g, DESCRIBE topic t-1, READ topic t-3")
            given = await join(ann)
            assert set(given) == {made["t-1"]}
            made |= {name: (await rig.topic(name)).id for name in ("t-3", "t-4")}
            assert set(await beat_until_changed(ann)) == {made["t-1"], made["t-3"]}

    run(test)


EPOCH = {"epoch": 0}


async def join(peer: Peer) -> list[bytes]:
    first = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=10_000, topic_partitions=[],
        subscribed_topic_regex="t-.*",
    )  # fmt: skip
    answer = await peer.call(first, 1)
    assert answer.error_code == 0, answer
    EPOCH["epoch"] = answer.member_epoch
    return await beat_until_changed(peer)


async def beat_until_changed(peer: Peer) -> list[bytes]:
    """The topics that the member gets next."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=EPOCH["epoch"]
            )
            answer = await peer.call(beat, 1)
            assert answer.error_code == 0, answer
            EPOCH["epoch"] = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return [topic.topic_id for topic in answer.assignment.topic_partitions]
            await asyncio.sleep(0.05)


def test_rights_are_checked_where_it_is_decided(tmp_path: Path) -> None:
    settings = ACLS | {"super_users": "User:root;User:ANONYMOUS"}

    async def test() -> None:
        async with nodes(tmp_path, **settings) as cluster:
            other = Rig(cluster.running[cluster.others[0]])
            wanted = CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in ("mine", "theirs")
                ],
                timeout_ms=10_000,
            )
            ann = await as_user(other, "ann")
            denied = await ann.call(wanted, 7)
            assert [t.error_code for t in denied.topics] == [TOPIC_DENIED] * 2
            await allow(other, "ann", "CREATE topic mine")
            made = await ann.call(wanted, 7)
            assert {t.name: t.error_code for t in made.topics} == {
                "mine": 0,
                "theirs": TOPIC_DENIED,
            }
            # The roles of a credential go with the request.
            rule = Row("", "CREATE topic theirs", 0, lambda _: None, []).creations("")[0]
            rule.principal = "Role:makers"
            await other.broker.controller.ask(CreateAclsRequest(creations=[rule]))
            ann.inside.principal = Principal("User", "ann", HOST, roles=frozenset({"makers"}))
            assert {t.name: t.error_code for t in (await ann.call(wanted, 7)).topics} == {
                "mine": TOPIC_ALREADY_EXISTS,
                "theirs": 0,
            }
            # An envelope is taken from nodes alone.
            leader = Rig(cluster.running[cluster.controller])
            mallory = await as_user(leader, "mallory")
            forged = EnvelopeRequest(request_data=b"", request_principal=b"")
            assert (await mallory.call(forged, 0)).error_code == CLUSTER_DENIED
            other.close_peers()
            leader.close_peers()

    run(test)


def test_a_super_user_is_a_principal(tmp_path: Path) -> None:
    config = broker_config({"log.dirs": str(tmp_path), "super.users": "User:ann;bob"})
    with pytest.raises(ConfigError, match=r"super.users has 'bob': write Type:name"):
        Node(config)


def test_a_controller_without_acls_is_one_to_super_users_alone() -> None:
    async def test() -> None:
        image = MetadataImage()
        guard = ControllerRights(Rights(image, Authorizer(frozenset({"User:root"}))), image)

        async def decide(request: object) -> object:
            return request

        asked = CreateAclsRequest()
        assert await guard(Principal("User", "root"), asked, decide) is asked
        with pytest.raises(ApiError) as refused:
            await guard(Principal("User", "ann"), asked, decide)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(test)


def test_a_kind_of_request_without_a_row_is_refused() -> None:
    async def test() -> None:
        image = MetadataImage()
        rights = Rights(image, Authorizer(frozenset({"User:root"})))
        rights.load()

        async def decide(request: object) -> object:
            raise AssertionError("it is decided")

        with pytest.raises(ApiError) as refused:
            await ControllerRights(rights, image)(Principal("User", "root"), ALL_TOPICS, decide)
        assert refused.value.code == CLUSTER_DENIED

    run(test)
