"""The one way to ask the active controller, from any node and any door, wherever it is.

`ask` decides on this node, if it is the active controller (`_HERE` has how), and sends the request
there otherwise: nodes' own requests as they are, clients' in an envelope that names the principal.
Rights are asked for where it is decided (`guard`).
After NOT_CONTROLLER or a lost connection the controller is looked up again, until the time-out.

A request whose answer was lost is sent again: it may be carried out twice, the second time with an
answer such as TOPIC_ALREADY_EXISTS, as in Kafka. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.auth.principal import Principal
from penstock.auth.usage import TimedMutations
from penstock.base.errors import ApiError, ErrorCode
from penstock.controlling.active_controller import Link
from penstock.controlling.quorum_driver import QuorumDriver
from penstock.metadata.broker_control import speaks_for
from penstock.metadata.controller import Controller, Deciding
from penstock.metadata.names import AUDIT_TOPIC
from penstock.metadata.topic_control import Admit, admitting, everything
from penstock.net.turn import in_turns
from penstock.peers.connection import Address, response_type
from penstock.peers.errors import PeerError, PeerLost, PeerUnreachable
from penstock.peers.peers import Channel, Peers
from penstock.raft.types import NO_NODE
from penstock.wire.apis import APIS, ApiKey, request_header_version, response_header_version
from penstock.wire.decoders import skip_tags
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from penstock.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from penstock.wire.messages.alter_role import AlterRoleRequest
from penstock.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.create_partitions import CreatePartitionsRequest
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.default_principal_data import DefaultPrincipalData
from penstock.wire.messages.delete_acls import DeleteAclsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import UpdateFeaturesRequest
from penstock.wire.schema import Message

R = TypeVar("R")
Q = TypeVar("Q", bound=Message)

Decide: TypeAlias = Callable[["ControllerAccess", "_Question"], Awaitable[Any]]
Guard: TypeAlias = Callable[[Principal, Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
"""The response to a principal's request, as far as it has the rights; it is given how to have a
request decided.
"""


class Quota(Protocol):
    """Bounds what a client may change, on this node; None if nothing does."""

    def __call__(
        self, principal: Principal, client_id: str | None, *, strict: bool
    ) -> TimedMutations | None: ...


CALL_TIMEOUT_S = 30.0
ATTEMPT_TIMEOUT_S = 5.0
RETRY_S = 0.05
"""How long to wait for another controller before the same one is tried again."""

_HEADER = struct.Struct(">hhih")
_CORRELATION_ID_BYTES = 4
_NO_CLIENT_ID = -1
_TAGS_FROM = 2  # of the request header
_STRICT_FROM: Final[dict[type[Message], int]] = {
    CreatePartitionsRequest: 3,
    CreateTopicsRequest: 6,
    DeleteTopicsRequest: 5,
}
"""The first version that knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
_MOVED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class _Question(NamedTuple):
    """A request, and the principal it is made for."""

    request: Any
    version: int | None
    principal: Principal | None
    link: Link | None
    client_id: str | None


class ControllerAccess:
    def __init__(
        self,
        driver: QuorumDriver,
        peers: Peers,
        guard: Guard | None = None,
        quota: Quota | None = None,
    ) -> None:
        """`guard` is asked on this node for every request that has a principal, `quota` for those
        that make or delete partitions.
        """
        self._driver = driver
        self._quota = quota
        self._guard = guard
        self._peers = peers
        self._loop = asyncio.get_running_loop()

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._driver.seat.active is not None

    @property
    def id(self) -> int:
        """The node that is the active controller as far as is known here; -1: none."""
        return self._driver.leader_id

    @property
    def committed_offset(self) -> int:
        """Everything below it is in the served image."""
        return self._driver.metadata.applied_offset

    # -- asking --------------------------------------------------------------------------------

    async def ask(
        self,
        request: Message,
        *,
        version: int | None = None,
        principal: Principal | None = None,
        client_id: str | None = None,
        link: Link | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        attempt_s: float = ATTEMPT_TIMEOUT_S,
        forward: bool = True,
    ) -> Any:
        """The active controller's response; `ApiError` NOT_CONTROLLER when there was none within
        `timeout_s`.

        `version` is that of the client, whose answer has to fit it; without one it is the newest.
        `principal` and `client_id` are the client's; without, the request is this node's own.
        `link` is the connection of a broker's own request. After `attempt_s` without an answer the
        request is sent again over a new connection. Without `forward` only this node is asked, and
        once.
        """
        question = _Question(request, version, principal, link, client_id)
        deadline = self._loop.time() + timeout_s
        while True:
            try:
                left_s = deadline - self._loop.time()
                if self.is_active or not forward:
                    response = await self._decide_here(question)
                else:
                    response = await self._ask_there(question, min(attempt_s, left_s))
                if not _moved(request, response):
                    return response
                reason = "the controller has moved"
            except PeerError as e:
                reason = str(e)
            except ApiError as e:
                if e.code != ErrorCode.NOT_CONTROLLER:
                    raise
                reason = e.message
            if not forward or self._loop.time() + RETRY_S >= deadline:
                raise ApiError(ErrorCode.NOT_CONTROLLER, reason)
            await self._driver.wait_for_change(RETRY_S)

    # -- here ----------------------------------------------------------------------------------

    async def submit(self, decide: Callable[[Controller], Deciding[R]]) -> R:
        """Make a decision, and give its response when its records are committed.

        `ApiError` NOT_CONTROLLER where this node is not the active controller.
        """
        return await self._driver.seat.submit(decide)

    async def _decide_here(self, question: _Question) -> Any:
        self._check_failure()
        decide, principal = _HERE[type(question.request)], question.principal
        if self._guard is None or principal is None:
            return await decide(self, question)
        return await self._guard(
            principal,
            question.request,
            lambda request: decide(self, question._replace(request=request)),
        )

    def _check_failure(self) -> None:
        if self._driver.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._driver.failure)

    async def _register_broker(self, question: _Question) -> Any:
        driver, request = self._driver, question.request
        assert isinstance(request, BrokerRegistrationRequest)
        active = driver.seat.active
        ended = None if active is None else active.ended_run(request)
        if ended is not None:
            intact = speaks_for(request, ended)
            await self.submit(
                lambda c: c.broker_unreachable(
                    ended.id, ended.epoch, driver.now_ms(), intact=intact
                )
            )
        self._heard(request.broker_id, question.link)
        return await self.submit(
            lambda c: c.register_broker(request, driver.next_offset, driver.now_ms())
        )

    async def _broker_heartbeat(self, question: _Question) -> Any:
        driver, request = self._driver, question.request
        assert isinstance(request, BrokerHeartbeatRequest)
        self._heard(request.broker_id, question.link)
        return await self.submit(
            lambda c: c.broker_heartbeat(request, driver.now_ms(), driver.next_offset)
        )

    def _heard(self, broker_id: int, link: Link | None) -> None:
        active = self._driver.seat.active
        if active is not None:
            active.heard(broker_id, link)

    async def _within_quota(
        self, question: _Question, decide: Callable[[Controller, Any, Admit], Deciding[Any]]
    ) -> Any:
        """Decided as far as the client's quota of mutations allows."""
        request, mutations = question.request, None
        if self._quota is not None and question.principal is not None:
            version = question.version
            strict = version is None or version >= _STRICT_FROM[type(request)]
            mutations = self._quota(question.principal, question.client_id, strict=strict)
        if mutations is None:
            return await self.submit(lambda c: decide(c, request, everything))
        admit = admitting(mutations.admit)
        response = await self.submit(lambda c: decide(c, request, admit))
        response.throttle_time_ms = mutations.throttle_ms()
        return response

    async def _delete_topics(self, question: _Question) -> Any:
        if not self._driver.seat.settings.config.delete_topic_enable:
            raise ApiError(
                ErrorCode.TOPIC_DELETION_DISABLED,
                "topics cannot be deleted here: delete.topic.enable is false",
            )
        if self._driver.seat.settings.config.penstock_audit_enable:
            self._keep_audit_log(question.request)
        return await self._within_quota(question, Controller.delete_topics)

    def _keep_audit_log(self, request: DeleteTopicsRequest) -> None:
        """`ApiError` where the topic of the audit log is among those to be deleted."""
        topic = self._driver.metadata.image.topics.get(AUDIT_TOPIC)
        named = {one.name for one in request.topics} | set(request.topic_names)
        if AUDIT_TOPIC in named or (topic and topic.id in {one.topic_id for one in request.topics}):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{AUDIT_TOPIC} cannot be deleted while penstock.audit.enable is true",
            )

    async def _ask_quorum(self, question: _Question) -> Any:
        return await self._driver.handle(question.request)

    # -- elsewhere -----------------------------------------------------------------------------

    async def _ask_there(self, question: _Question, timeout_s: float) -> Any:
        self._check_failure()
        address = self._driver.leader_address
        if address is None:
            raise PeerUnreachable("no active controller is known")
        request, timeout_s = question.request, max(timeout_s, RETRY_S)
        kind: type[Message] = type(request)
        key = ApiKey(kind.API_KEY or 0)
        if APIS[key].listener == "controller":
            channel = Channel.PARTITIONS if key == ApiKey.ALTER_PARTITION else Channel.CONTROLLER
            return await self._send(address, channel, request, timeout_s)
        version = question.version
        if version is None:
            version = APIS[key].stable_versions[-1]
        encoded = await in_turns(request.encode_in_steps(version))
        envelope = _envelope(question, key, version, encoded)
        response = await self._send(address, Channel.FORWARD, envelope, timeout_s)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            raise PeerError(f"{address} is not the active controller")
        if response.error_code or response.response_data is None:
            raise ApiError(ErrorCode(response.error_code), f"{address} refuses to be asked")
        data = memoryview(response.response_data)
        position = _CORRELATION_ID_BYTES
        if response_header_version(key, version):
            position = skip_tags(data, position, len(data))
        steps = response_type(kind).decode_in_steps(data, position, version)
        return (await in_turns(steps))[0]

    async def _send(
        self, address: Address, channel: Channel, request: Message, timeout_s: float
    ) -> Any:
        """The response, or a `PeerError`, also when another leader becomes known before."""
        driver, asked = self._driver, self._driver.leader_id
        sending = self._loop.create_task(
            self._peers.send(address, channel, request, timeout_s=timeout_s)
        )
        try:
            while not sending.done():
                await driver.wait_for_change(timeout_s, sending)
                if not sending.done() and driver.leader_id not in (asked, NO_NODE):
                    raise PeerLost(f"node {asked} is not the controller any more")
            return sending.result()
        finally:
            sending.cancel()


def _moved(request: Message, response: Message) -> bool:
    """Whether the response means that the controller is elsewhere by now."""
    if isinstance(request, AlterPartitionRequest):
        # For a single partition it means that the controller is behind, and goes to the client.
        return getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER
    return any(code in _MOVED for code in response.error_codes())


def _envelope(question: _Question, key: ApiKey, version: int, encoded: bytes) -> EnvelopeRequest:
    """`encoded` is the request in this version."""
    header = _HEADER.pack(key, version, 0, _NO_CLIENT_ID)
    if question.client_id is not None:
        name = question.client_id.encode()
        header = _HEADER.pack(key, version, 0, len(name)) + name
    if request_header_version(key, version) >= _TAGS_FROM:
        header += b"\0"
    principal = question.principal
    return EnvelopeRequest(
        request_data=header + encoded,
        request_principal=None if principal is None else _encode_principal(principal),
        client_host_address=_encode_host("" if principal is None else principal.host),
    )


def _encode_principal(principal: Principal) -> bytes:
    """A principal as Kafka's brokers encode it: a version, then the structure. What follows is
    ours: the roles that its credential grants, as JSON, if there are any.
    """
    data = DefaultPrincipalData(
        type=principal.type,
        name=principal.name,
        token_authenticated=principal.token_authenticated,
    )
    roles = json.dumps(sorted(principal.roles)).encode() if principal.roles else b""
    return b"\0\0" + data.encode(0) + roles


def _encode_host(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""


def _decided_by(decide: Callable[[Controller, Q], Deciding[Any]]) -> Decide:
    return lambda access, question: access.submit(lambda c: decide(c, question.request))


def _decided_within_quota(decide: Callable[[Controller, Any, Admit], Deciding[Any]]) -> Decide:
    return lambda access, question: access._within_quota(question, decide)


def _decided_for_principal(decide: Callable[[Controller, Q, str, int], Deciding[Any]]) -> Decide:
    """By the principal and the time of day."""

    async def decided(access: ControllerAccess, question: _Question) -> Any:
        principal = question.principal
        if principal is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a request for tokens names its principal")
        wall_ms = access._driver.wall_ms
        return await access.submit(lambda c: decide(c, question.request, principal.text, wall_ms()))

    return decided


_HERE: dict[type[Message], Decide] = {
    AddRaftVoterRequest: ControllerAccess._ask_quorum,
    AllocateProducerIdsRequest: _decided_by(Controller.allocate_producer_ids),
    AlterClientQuotasRequest: _decided_by(Controller.alter_client_quotas),
    AlterConfigsRequest: _decided_by(Controller.alter_configs),
    AlterPartitionReassignmentsRequest: _decided_by(Controller.alter_partition_reassignments),
    AlterPartitionRequest: _decided_by(Controller.alter_partition),
    AlterRoleRequest: _decided_by(Controller.alter_role),
    AlterUserScramCredentialsRequest: _decided_by(Controller.alter_user_scram_credentials),
    BrokerHeartbeatRequest: ControllerAccess._broker_heartbeat,
    BrokerRegistrationRequest: ControllerAccess._register_broker,
    CreateAclsRequest: _decided_by(Controller.create_acls),
    CreateDelegationTokenRequest: _decided_for_principal(Controller.create_delegation_token),
    CreatePartitionsRequest: _decided_within_quota(Controller.create_partitions),
    CreateTopicsRequest: _decided_within_quota(Controller.create_topics),
    DeleteAclsRequest: _decided_by(Controller.delete_acls),
    DeleteTopicsRequest: ControllerAccess._delete_topics,
    DescribeQuorumRequest: ControllerAccess._ask_quorum,
    ElectLeadersRequest: _decided_by(Controller.elect_leaders),
    ExpireDelegationTokenRequest: _decided_for_principal(Controller.expire_delegation_token),
    IncrementalAlterConfigsRequest: _decided_by(Controller.incremental_alter_configs),
    ListPartitionReassignmentsRequest: _decided_by(Controller.list_partition_reassignments),
    RemoveRaftVoterRequest: ControllerAccess._ask_quorum,
    RenewDelegationTokenRequest: _decided_for_principal(Controller.renew_delegation_token),
    UnregisterBrokerRequest: _decided_by(Controller.unregister_broker),
    UpdateFeaturesRequest: _decided_by(Controller.update_features),
}
"""How each request is decided on the active controller."""
