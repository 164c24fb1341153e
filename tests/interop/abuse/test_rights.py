"""Users who got in, and do what they may not: as a node, as somebody else, by another door."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from interop.abuse.rig import LOCKED, admin, allow, login
from penstock.wire.apis import ApiKey, request_header_version
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.default_principal_data import DefaultPrincipalData
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.fetch import FetchRequest, ReplicaState
from penstock.wire.messages.header import RequestHeader
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.messages.produce import ProduceRequest
from support.batches import batch
from support.calls import RawTopic, fetch_request, find_topic, list_offset, produce_request
from support.helpers import make_topic
from support.raw import Closed, RawClient
from support.rights_rows import CLUSTER_DENIED, TOPIC_DENIED, TXN_DENIED, codes
from support.secured_node import SecuredNode

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8
TOPIC, CLUSTER = 2, 4
TRANSACTIONAL = 16
NODE = 1


@contextlib.contextmanager
def reader(
    node: SecuredNode, name: str, partitions: int = 1
) -> Iterator[tuple[RawClient, RawTopic]]:
    """Somebody who may read and write a topic, and nothing else."""
    topic = make_topic(node, name, partitions)
    assert allow(node, (READ, TOPIC, topic), (WRITE, TOPIC, topic)) == [0, 0]
    with login(node) as client:
        yield client, find_topic(client, topic)


# -- as a replica ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FetchRequest.VERSIONS)
def test_a_client_that_fetches_as_a_replica(locked: SecuredNode, version: int) -> None:
    """CVE-2018-1288: it would be counted among those who have the messages."""
    with reader(locked, f"replica-{version}") as (client, topic):
        for replica in (NODE, 77):
            request = fetch_request([(topic, {0: 0})], version)
            if version >= 15:
                request.replica_state = ReplicaState(replica_id=replica, replica_epoch=1)
            else:
                request.replica_id = replica
            answer = client.call(request, version)
            assert codes(answer) == [TOPIC_DENIED]
            assert not any(p.records for t in answer.responses for p in t.partitions)
        assert codes(client.call(fetch_request([(topic, {0: 0})], version), version)) == []


@pytest.mark.parametrize("replica", [NODE, 77, -2])
def test_a_client_that_asks_for_offsets_as_a_replica(locked: SecuredNode, replica: int) -> None:
    """It is told what any client is: nothing that is not committed. -2 is for debugging."""
    name = f"offsets-of-{replica}".replace("--", "-minus-")
    with reader(locked, name) as (client, topic):
        part = ListOffsetsPartition(partition_index=0, timestamp=-1)
        for version in ListOffsetsRequest.VERSIONS:
            asked = [ListOffsetsTopic(name=topic.name, partitions=[part])]
            request = ListOffsetsRequest(replica_id=replica, topics=asked)
            own = client.call(request, version)
            request.replica_id = -1
            assert own == client.call(request, version)
        hidden = [ListOffsetsTopic(name="nowhere", partitions=[part])]
        request = ListOffsetsRequest(replica_id=replica, topics=hidden)
        assert codes(client.call(request, 7)) == [TOPIC_DENIED]


@pytest.mark.parametrize("version", [v for v in OffsetForLeaderEpochRequest.VERSIONS if v >= 3])
def test_a_client_that_asks_for_epochs_as_a_replica(locked: SecuredNode, version: int) -> None:
    with reader(locked, f"epochs-{version}"), login(locked) as client:
        part = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
        request = OffsetForLeaderEpochRequest(
            replica_id=NODE, topics=[OffsetForLeaderTopic(topic="nowhere", partitions=[part])]
        )
        assert codes(client.call(request, version)) == [TOPIC_DENIED]


# -- as a node that forwards -----------------------------------------------------------------------


def forwarded(name: str, principal: bytes | None) -> EnvelopeRequest:
    body = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    ).encode(7)
    header = RequestHeader(
        request_api_key=ApiKey.CREATE_TOPICS, request_api_version=7, correlation_id=1
    )
    return EnvelopeRequest(
        request_data=header.encode(request_header_version(ApiKey.CREATE_TOPICS, 7)) + body,
        request_principal=principal,
        client_host_address=b"\x7f\0\0\1",
    )


@pytest.mark.parametrize("whom", ["ANONYMOUS", "writer", None])
def test_a_client_that_forwards_a_request(locked: SecuredNode, whom: str | None) -> None:
    """Whoever it names, and even with a right to create of its own."""
    principal = whom and b"\0\0" + DefaultPrincipalData(type="User", name=whom).encode(0)
    name = f"forwarded-for-{whom}"
    with login(locked) as client:
        answer = client.call(forwarded(name, principal or None), 0)  # type: ignore[arg-type]
        assert answer.error_code == CLUSTER_DENIED
        assert not answer.response_data
    with admin(locked) as root:
        found = offset_code(root, name)
    assert found == 3, "no such topic"


def offset_code(client: RawClient, name: str) -> int:
    return int(list_offset(client, RawTopic(name, bytes(16)), -1, version=7).error_code)


# -- past the rights of a transaction --------------------------------------------------------------


def transactional(**fields: Any) -> bytes:
    return batch(
        [b"v"], attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0, **fields
    )


@pytest.mark.parametrize("version", ProduceRequest.VERSIONS)
def test_a_produce_in_the_transaction_of_another(locked: SecuredNode, version: int) -> None:
    """By its id, by none, and with a batch of no transaction before it (GHSA-47w3-66wq-cpxg)."""
    with reader(locked, f"txn-{version}", 2) as (client, topic):
        for id_ in ("payments", "", None):
            request = produce_request(topic, transactional(), version)
            request.transactional_id = id_
            assert set(codes(client.call(request, version))) == {TXN_DENIED}
        mixed = produce_request(topic, batch([b"v"]), version)
        second = produce_request(topic, transactional(), version, partition=1)
        mixed.topic_data[0].partition_data += second.topic_data[0].partition_data
        assert set(codes(client.call(mixed, version))) == {TXN_DENIED}
        ends = [list_offset(client, topic, -1, partition=p).offset for p in (0, 1)]
        assert ends == [1, 0], "only what belongs to no transaction was written"


# -- names of ACLs ---------------------------------------------------------------------------------

ODD = {
    "a NUL": "odd\0",
    "a line": "odd\n1999-01-01T00:00:00.000Z ERROR penstock.node: FORGED",
    "an escape": "odd\x1b[2J",
    "a long one": "o" * 30_000,
    "250": "o" * 250,
    "cyrillic": "оdd",
    "full width": "ｏdd",
    "zero width": "od\u200bd",
    "upper case": "ODD",
    "a blank": "odd ",
    "decomposed": "odd\u0301",
    "right to left": "\u202eodd",
    "a separator": "odd\u2028",
}


def creation(name: str, principal: str = "User:writer", host: str = "*") -> AclCreation:
    return AclCreation(
        resource_type=TOPIC, resource_name=name, principal=principal, host=host, operation=READ,
        permission_type=3,
    )  # fmt: skip


def described(root: RawClient) -> set[tuple[str, str, str]]:
    every = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    return {
        (of.resource_name, acl.principal, acl.host)
        for of in root.call(every, 3).resources
        for acl in of.acls
    }


def test_acls_with_odd_names_are_for_those_names(tmp_path: Any) -> None:
    """They are kept byte for byte, also by a restart; give no right to what looks like them; and
    forge no line of the log.
    """
    with SecuredNode(tmp_path / "node", LOCKED | {"penstock.log.level": "debug"}) as node:
        make_topic(node, "odd")
        odd = [creation(name) for name in ODD.values()]
        odd += [creation("odd", principal=f"User:writer{n}") for n in ("\0", "\n", " ", "\u200b")]
        odd += [creation("odd", principal="User:Writer"), creation("odd", principal="user:writer")]
        odd += [creation("odd", host=host) for host in ("127.0.0.1\n", "127.0.0.1 ", "127.0.0.*")]
        wanted = {(one.resource_name, one.principal, one.host) for one in odd}
        with admin(node) as root:
            answer = root.call(CreateAclsRequest(creations=odd), 3)
            assert [one.error_code for one in answer.results] == [0] * len(odd)
            assert described(root) == wanted
        check_odd_denied(node)
        node.restart()
        with admin(node) as root:
            assert described(root) == wanted
        check_odd_denied(node)
        lines = node.log_path.read_text().split("\n")
        assert not [line for line in lines if line.startswith(("1999", "FORGED"))]


def check_odd_denied(node: SecuredNode) -> None:
    with login(node) as client:
        asked = [(RawTopic(name, bytes(16)), {0: 0}) for name in ("odd", ODD["a line"])]
        refused = client.call(fetch_request(asked[:1], 12), 12)
        assert codes(refused) == [TOPIC_DENIED]
        assert codes(client.call(fetch_request(asked[1:], 12), 12)) == [3], "allowed, not there"


@pytest.mark.parametrize("principal", ["", "writer", ":", "User", "\0"])
def test_acls_of_no_principal(locked: SecuredNode, principal: str) -> None:
    with admin(locked) as root:
        before = described(root)
        request = CreateAclsRequest(creations=[creation("x", principal=principal)])
        with contextlib.suppress(Closed):
            answer = root.call(request, 3)
            assert bool(answer.results[0].error_code) == (":" not in principal)
        assert {one for one in described(root) - before if ":" not in one[1]} == set()
