"""Runs with rights: an authorizer, clients with ACLs, a stranger who has none, a guest whose ACLs
come and go.

The simulated network has no logins: who somebody is follows from the machine that they connect
from. Nodes and the operator are super users. What must hold: the stranger is refused whatever
happens; clients, whose ACLs every node had before they began, are never told that they may not
(`Paths.answered`); and once all is healed what the guest may do follows its ACLs on every node.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.auth.principal import Principal
from penstock.auth.types import Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import ErrorCode
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.peers.errors import PeerError
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch
from penstock.wire.schema import Message

from .anew import AGAIN
from .checks import holds
from .clock import EPOCH_MS
from .paths import Paths
from .wire import Wire, pause

CLIENT, STRANGER, GUEST = "client", "stranger", "guest"
NODE, OPERATOR = "node", "operator"
ADMIN = "admin"
BY_NAME_VERSION = 12
EVERY_S = 0.5
FOLLOWED_S = 0.1
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{NODE};User:{OPERATOR}",
}
_TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def is_locked(seed: int) -> bool:
    return seed % 3 == 0


def name_of(host: str) -> str:
    """Who connects from a machine."""
    if re.fullmatch(r"n\d+", host):
        return NODE
    if host in (ADMIN, AGAIN):
        return OPERATOR
    return host if host in (STRANGER, GUEST) else CLIENT


def install() -> None:
    """Have nodes know who connects."""
    server: Any = importlib.import_module("penstock.net.server")
    server.anonymous = lambda host: Principal("User", name_of(host), host)


def _rule(kind: ResourceType, name: str, user: str, operation: Operation) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=PermissionType.ALLOW,
    )


async def let_in(wire: Wire) -> None:
    """Gives clients their rights; returns when they are committed."""
    rules = [_rule(kind, "*", CLIENT, Operation.ALL) for kind in _TYPES]
    rules.append(_rule(ResourceType.CLUSTER, "kafka-cluster", CLIENT, Operation.ALL))
    while not await changed(wire, CreateAclsRequest(creations=rules)):
        await pause(0.2)


async def changed(wire: Wire, request: Message) -> bool:
    """Whether ACLs could be changed."""
    try:
        answer = await wire.call_any(request)
    except PeerError:
        return False
    results = answer.results if isinstance(request, CreateAclsRequest) else answer.filter_results
    return not any(one.error_code for one in results)


async def known_everywhere(wire: Wire, topic: str) -> None:
    """Returns when a client with rights has them on every node: each follows on its own."""
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    for address in wire.bootstrap:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        while code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            try:
                code = (await wire.call(address, asked)).topics[0].error_code
            except PeerError:
                await pause(FOLLOWED_S)


class Outsider:
    """Tries to write and to read what is not its own, at one node after the other."""

    def __init__(self, wire: Wire, paths: Paths, rng: random.Random, topic: str) -> None:
        self.wire = wire
        self.stopping = False
        self._paths = paths
        self._rng = rng
        self._topic = topic
        self._tries = 0

    async def run(self) -> None:
        while not self.stopping:
            await pause(EVERY_S * self._rng.uniform(0.5, 1.5))
            for code in await self.codes(self._rng.choice(self.wire.bootstrap)):
                denied = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
                holds(denied, f"{self.wire.name}, who has no rights, was answered {code.name}")
                self._paths.reach("stranger refused")

    async def codes(self, address: Any) -> list[ErrorCode]:
        """What a Produce and a Fetch are answered; nothing where nobody answers."""
        self._tries += 1
        value = f"{self.wire.name}/{self._tries} ".encode()
        data = PartitionProduceData(
            index=0, records=build_batch([Record(0, EPOCH_MS, None, value)])
        )
        written = ProduceRequest(
            acks=1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        wanted = FetchTopic(topic=self._topic, partitions=[part])
        read = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000, topics=[wanted])
        try:
            answer = await self.wire.call(address, written, BY_NAME_VERSION)
            codes = [p.error_code for t in answer.responses for p in t.partition_responses]
            answer = await self.wire.call(address, read, BY_NAME_VERSION)
        except PeerError:
            return []
        codes += [p.error_code for t in answer.responses for p in t.partitions]
        holds(
            not any(p.records for t in answer.responses for p in t.partitions)
            or self.wire.name == GUEST,
            f"{self.wire.name}, who has no rights, has read",
        )
        return [ErrorCode(code) for code in codes]


class Guest(Outsider):
    """What it may read comes and goes; it may never write."""

    def __init__(
        self,
        wire: Wire,
        paths: Paths,
        rng: random.Random,
        topic: str,
        as_operator: Callable[[Message], Awaitable[bool]],
    ) -> None:
        """`as_operator`: whether the operator could do that."""
        super().__init__(wire, paths, rng, topic)
        self._as_operator = as_operator
        self._over = asyncio.Event()
        """What `run` changes is changed."""

    async def run(self) -> None:
        try:
            await self._come_and_go()
        finally:
            self._over.set()

    async def _come_and_go(self) -> None:
        allowed = False
        while not self.stopping:
            allowed = not allowed
            if await self._allow(allowed):
                self._paths.reach("acl changed")
            await pause(EVERY_S * self._rng.uniform(0.2, 4.0))
            for address in self.wire.bootstrap:
                for code in (await self.codes(address))[:1]:
                    denied = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    holds(denied, f"{GUEST}, who may not write, was answered {code.name}")

    async def _allow(self, allowed: bool) -> bool:
        if allowed:
            rule = _rule(ResourceType.TOPIC, self._topic, GUEST, Operation.READ)
            return await self._as_operator(CreateAclsRequest(creations=[rule]))
        every = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=f"User:{GUEST}",
            host_filter=None, operation=Operation.ANY, permission_type=PermissionType.ANY,
        )  # fmt: skip
        return await self._as_operator(DeleteAclsRequest(filters=[every]))

    async def follows(self, allowed: bool, give_up: float, now: Any) -> None:
        """All is healed: a change counts on every node, soon after it was committed, and stays: the
        last one of `run` may be under way until that ends.
        """
        await self._over.wait()
        while not await self._allow(allowed):
            holds(now() < give_up, "no ACL could be changed")
            await pause(FOLLOWED_S)
        for address in self.wire.bootstrap:
            while True:
                codes = await self.codes(address)
                denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes[1:]
                if codes and denied is not allowed:
                    break
                said = [code.name for code in codes]
                holds(now() < give_up, f"{GUEST} is told {said}, with READ: {allowed}")
                await pause(FOLLOWED_S)
        self._paths.reach("acl followed")
