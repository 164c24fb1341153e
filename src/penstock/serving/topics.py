"""Topics as the served metadata has them, and the creation of those that clients ask for.

Who may not describe a topic is not told whether it exists, unless by an id that nothing has. Owned
by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.auth.principal import Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicKey
from penstock.config.layers import BrokerSettings
from penstock.controlling.controller_access import ControllerAccess
from penstock.coordinating.group_coordinator import GroupCoordinator
from penstock.coordinating.share_coordinator import ShareCoordinator
from penstock.coordinating.transaction_coordinator import TransactionCoordinator
from penstock.metadata.image import MetadataImage, Topic
from penstock.metadata.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from penstock.metadata.topic_control import DEFAULT, PARTITIONS_PER_REQUEST_MAX
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.audit_log import AuditLog
from penstock.serving.audited_requests import told
from penstock.serving.rights import Rights
from penstock.serving.topic_pieces import TopicPieces
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class TopicService:
    def __init__(
        self,
        image: MetadataImage,
        replicas: ReplicaManager,
        controller: ControllerAccess,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_states: ShareCoordinator,
        settings: BrokerSettings,
        rights: Rights,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._controller = controller
        self._groups = groups
        self._transactions = transactions
        self._share_states = share_states
        self._settings = settings
        self._rights = rights
        self.pieces = TopicPieces()
        """What doors have made of topics and may use again, until the topics change."""
        self.audit: AuditLog | None = None

    # -- finding -------------------------------------------------------------------------------

    def sees_all(self, principal: Principal) -> bool:
        """Whether no topic has to be left out for them, nor one operation on it."""
        return self._rights.sees_all(principal)

    def listed(self, principal: Principal) -> Iterable[Topic]:
        """Those that they may know of; it changes with the metadata."""
        topics = self._image.topics.values()
        if not self._rights.active:
            return topics
        return (topic for topic in topics if self._shows(principal, topic.name))

    def names(self, principal: Principal) -> list[str]:
        """Of all topics there are, whoever asks: to be looked up by `get`, some at a time."""
        return list(self._image.topics)

    def sorted_names(self, principal: Principal) -> list[str]:
        """The same in order."""
        return self.pieces.sorted_names(self._image.topics)

    def get(self, principal: Principal, name: str) -> Topic | None:
        """The topic, unless it is to be left out of what is listed for them."""
        topic = self._image.topics.get(name)
        return topic if topic is None or self._shows(principal, name) else None

    def _shows(self, principal: Principal, name: str) -> bool:
        return self._rights.shows(principal, Operation.DESCRIBE, ResourceType.TOPIC, name)

    def find(self, principal: Principal, topic: TopicKey) -> Topic:
        """The topic with this name or id, or the ApiError that says there is none."""
        self._rights.require_topic(principal, Operation.DESCRIBE, topic)
        return self._replicas.topic(topic)

    def operations(self, principal: Principal, name: str) -> int:
        """What they may do with the topic, as the bits of the protocol."""
        return self._rights.operations(principal, ResourceType.TOPIC, name)

    def check_writable(self, principal: Principal, name: str, index: int) -> None:
        """`ApiError` unless they may write to the partition, and there is one."""
        self._rights.require_topic(principal, Operation.WRITE, name)
        self.check_partition(principal, name, index)

    def check_partition(self, principal: Principal, name: str, index: int) -> None:
        """`ApiError` unless there is such a partition; for nodes."""
        topic = self._image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_count(self, principal: Principal) -> int:
        """Of all topics together."""
        return self._image.partition_count

    @property
    def page_partitions_max(self) -> int:
        """How many partitions one answer may describe."""
        return self._settings.config.max_request_partition_size_limit

    # -- creating ------------------------------------------------------------------------------

    @property
    def auto_create(self) -> bool:
        """Whether a topic is created when a client asks for it."""
        return self._settings.config.auto_create_topics_enable

    def missing(self, principal: Principal, names: Iterable[str]) -> list[str]:
        """Those that do not exist, as far as the principal may know that."""
        known = self._image.topics
        return [
            name
            for name in names
            if name not in known and self._rights.topic(principal, Operation.DESCRIBE, name)
        ]

    async def create(
        self, principal: Principal, names: list[str], client_id: str | None = None
    ) -> dict[str, int]:
        """Create topics; the error codes of those that were refused.

        How many partitions and replicas they get is for this node's file to say, or else for the
        controller.
        """
        refused = self._not_creatable(principal, names)
        names = [name for name in names if name not in refused]
        if not names:
            return refused
        for internal, coordinator in (
            (OFFSETS_TOPIC, self._groups),
            (TRANSACTIONS_TOPIC, self._transactions),
            (SHARE_STATE_TOPIC, self._share_states),
        ):
            if internal in names:
                refused[internal] = int(await coordinator.make_topic())
                names = [name for name in names if name != internal]
        if len(names) > PARTITIONS_PER_REQUEST_MAX:
            # The controller would say so of each of them.
            return refused | dict.fromkeys(names, int(ErrorCode.POLICY_VIOLATION))
        set_here, config = self._settings.static, self._settings.config
        partitions = config.num_partitions if "num.partitions" in set_here else DEFAULT
        replicas = (
            config.default_replication_factor
            if "default.replication.factor" in set_here
            else DEFAULT
        )
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
            for name in names
        ]
        try:
            response = await self.make(principal, topics, client_id)
        except ApiError as e:
            return refused | dict.fromkeys(names, int(e.code))
        refused |= {t.name: t.error_code for t in response.topics}
        return {name: code for name, code in refused.items() if code != ErrorCode.NONE}

    async def make(
        self, principal: Principal, topics: list[CreatableTopic], client_id: str | None
    ) -> CreateTopicsResponse:
        """Have the active controller create topics, with the rights of `principal`."""
        request = CreateTopicsRequest(topics=topics)
        self._rights.require_change(principal)
        response: CreateTopicsResponse = await self._controller.ask(
            request, principal=principal, client_id=client_id
        )
        if self.audit is not None:
            kind, status, created, detail = told(request, response)
            self.audit.managed(principal, "CreateTopics", kind, status, created, detail=detail)
        return response

    def _not_creatable(self, principal: Principal, names: list[str]) -> dict[str, int]:
        if self._rights.cluster_shows(principal, Operation.CREATE):
            return {}
        return {
            name: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for name in names
            if not self._rights.topic(principal, Operation.CREATE, name)
        }
