"""Topics as the served metadata has them, and the creation of those that clients ask for.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import TopicKey
from penstock.config.layers import BrokerSettings
from penstock.controlling.controller_access import ControllerAccess
from penstock.coordinating.group_coordinator import GroupCoordinator
from penstock.coordinating.transaction_coordinator import TransactionCoordinator
from penstock.metadata.image import MetadataImage, Topic
from penstock.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.metadata.topic_control import DEFAULT, PARTITIONS_PER_REQUEST_MAX
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.topic_pieces import TopicPieces
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest


class TopicService:
    def __init__(
        self,
        image: MetadataImage,
        replicas: ReplicaManager,
        controller: ControllerAccess,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        settings: BrokerSettings,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._controller = controller
        self._groups = groups
        self._transactions = transactions
        self._settings = settings
        self.pieces = TopicPieces()
        """What doors have made of topics and may use again, until the topics change."""

    # -- finding -------------------------------------------------------------------------------

    def all(self, principal: str) -> Mapping[str, Topic]:
        """By name; it changes with the metadata."""
        return self._image.topics

    def sorted_names(self, principal: str) -> list[str]:
        return self.pieces.sorted_names(self._image.topics)

    def find(self, principal: str, topic: TopicKey) -> Topic:
        """The topic with this name or id, or the ApiError that says there is none."""
        return self._replicas.topic(topic)

    def has_partition(self, principal: str, name: str, index: int) -> bool:
        topic = self._image.topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def partition_count(self, principal: str) -> int:
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

    async def create(self, principal: str, names: list[str]) -> dict[str, int]:
        """Create topics; the error codes of those that were refused.

        How many partitions and replicas they get is for this node's file to say, or else for the
        controller.
        """
        refused = {}
        for internal, coordinator in (
            (OFFSETS_TOPIC, self._groups),
            (TRANSACTIONS_TOPIC, self._transactions),
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
            response = await self._controller.ask(
                CreateTopicsRequest(topics=topics), principal=principal
            )
        except ApiError as e:
            return refused | dict.fromkeys(names, int(e.code))
        refused |= {t.name: t.error_code for t in response.topics}
        return {name: code for name, code in refused.items() if code != ErrorCode.NONE}
