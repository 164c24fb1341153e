"""Every API that is served, asked by a principal without rights: nothing is done, and no answer
tells whether a name exists. An API that does not ask for rights fails here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.api.handlers import api_names
from penstock.api.registry import APIS, Api
from penstock.auth.principal import Principal
from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.wire.apis import ApiKey, response_header_version
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from penstock.wire.messages.alter_role import AlterRoleRequest
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.header import ResponseHeader
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.schema import Message
from support.rights_rows import codes
from unit.api.asking import about, by_id_only, for_everything
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running

assert api_names(), "importing the handlers fills the registry"

THERE, MISSING = "there", "other"
NO_TOPIC: Final = bytes(15) + b"x"
ROOT = Principal("User", "root", "127.0.0.1")
NOBODY = Principal("User", "nobody", "127.0.0.1")
DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
NEVER_DENIED: Final = {
    ApiKey.API_VERSIONS: "clients ask before they log in",
    ApiKey.SASL_HANDSHAKE: "it is how one logs in",
    ApiKey.SASL_AUTHENTICATE: "it is how one logs in",
    ApiKey.DESCRIBE_CLUSTER: "who may connect may know the brokers",
    ApiKey.LIST_GROUPS: "groups are left out",
    ApiKey.LIST_TRANSACTIONS: "transactional ids are left out",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "tokens are left out",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "clients ask what to push without a right, as in Kafka",
    ApiKey.PUSH_TELEMETRY: "clients push without a right, as in Kafka",
    ApiKey.RENEW_DELEGATION_TOKEN: "only who has a token can name it",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "only who has a token can name it",
}

GIVES_IDS: Final = ApiKey.GET_TELEMETRY_SUBSCRIPTIONS
"""Each answer has an id of its own."""
NO_CODE: Final = {
    (ApiKey.DESCRIBE_LOG_DIRS, 1),
    (ApiKey.DESCRIBE_LOG_DIRS, 2),
    (ApiKey.CREATE_DELEGATION_TOKEN, 1),
    (ApiKey.CREATE_DELEGATION_TOKEN, 2),
}
"""Versions that have no place to say so: the answer is empty; or that can ask for nothing that is
another one's.
"""


async def world(rig: Rig) -> bytes:
    """A topic, a group, a transaction and a user who are all called there; the topic's id."""
    topic = await rig.topic(THERE)
    root = await as_principal(rig, ROOT)
    assert (await root.produce(topic)).error_code == 0
    for kind in (0, 1):
        await carried_out(root, FindCoordinatorRequest(coordinator_keys=[THERE], key_type=kind), 4)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(
        group_id=THERE, topics=[OffsetCommitRequestTopic(name=THERE, partitions=[partition])]
    )
    await carried_out(root, commit, 9)
    begin = InitProducerIdRequest(transactional_id=THERE, transaction_timeout_ms=60_000)
    producer = await carried_out(root, begin, 4)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=THERE,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=THERE, partitions=[0])],
    )
    await carried_out(root, add, 3)
    rule = AclCreation(
        resource_type=2, resource_name="a", principal=f"User:{THERE}", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    assert list((await root.call(CreateAclsRequest(creations=[rule]), 3)).error_codes()) == []
    quota = RequestEntryData(
        entity=[EntityData(entity_type="user", entity_name=THERE)],
        ops=[OpData(key="producer_byte_rate", value=1e9)],
    )
    await carried_out(root, AlterClientQuotasRequest(entries=[quota]), 1)
    await carried_out(root, AlterRoleRequest(name=THERE, members=[f"User:{THERE}"]), 0)
    owned = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name=THERE)
    await carried_out(root, owned, 3)
    return topic.id


async def carried_out(peer: Peer, request: Message, version: int) -> Any:
    """The answer without an error: internal topics are made and loaded when they are needed."""
    while codes(answer := await peer.call(request, version)):
        await asyncio.sleep(0.01)
    return answer


async def as_principal(rig: Rig, principal: Principal) -> Peer:
    peer = await rig.peer()
    authentication = rig.node._authentication
    assert authentication is not None
    [gate] = authentication.gates.values()
    peer.inside.authenticated(principal, gate._dispatcher)  # as after a login
    return peer


def state(rig: Rig) -> Any:
    """Everything that a request could change, but for the tokens that everybody may have."""
    logs = {
        log.name: (log.log_start_offset, log.log_end_offset)
        for log in rig.broker.logs.opened()
        if METADATA_TOPIC not in log.name
    }
    image = rig.broker.metadata.copy()
    for token in [t for t in image.security.tokens.values() if t.owner == NOBODY.text]:
        del image.security.tokens[token.id]
    return image.frozen(), logs


def secured(tmp_path: Path, **settings: str) -> Any:
    texts = {
        "authorizer_class_name": STANDARD_AUTHORIZER,
        "super_users": "User:root",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter_broker_listener_name": "PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "delegation_token_secret_key": "the secret",
    }
    return running(tmp_path, **texts | settings)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_nothing_is_done_and_nothing_is_told(tmp_path: Path, api: Api) -> None:
    async def test() -> None:
        async with secured(tmp_path, auto_create_topics_enable="true") as rig:
            topic_id = await world(rig)
            before = state(rig)
            nobody = await as_principal(rig, NOBODY)
            for version in api.versions:
                told = [
                    await _denied(nobody, api, version, name, id_)
                    for name, id_ in ((THERE, topic_id), (MISSING, NO_TOPIC))
                ]
                if not by_id_only(api.request, version) and api.key != GIVES_IDS:
                    assert told[0] == told[1], f"version {version} tells what there is"
                nobody.send(for_everything(api.request, version), version)
                assert THERE.encode() not in await nobody.receive_payload()
                nobody._sent.clear()
            assert state(rig) == before

    run(test)


async def _denied(peer: Peer, api: Api, version: int, name: str, topic_id: bytes) -> bytes:
    """The answer without the name that was asked for."""
    peer.send(about(api.request, version, name, topic_id), version)
    payload = await peer.receive_payload()
    peer._sent.clear()
    if not (api.key in NEVER_DENIED or (api.key, version) in NO_CODE or topic_id == NO_TOPIC):
        answer = decoded(api, payload, version)
        said = set(codes(answer))
        assert said & DENIALS, f"version {version} does not ask for rights: {answer}"
        assert said <= DENIALS | {ErrorCode.OPERATION_NOT_ATTEMPTED}
    return payload[4:].replace(name.encode(), b"<name>")


def decoded(api: Api, payload: bytes, version: int) -> Any:
    _, at = ResponseHeader.decode_from(payload, 0, response_header_version(api.key, version))
    return api.response.decode(payload[at:], version)
