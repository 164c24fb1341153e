"""Where the dead letters of a share group go: its topic, and whether that can take them.

The rules are Kafka's (KIP-1191): the feature `share.version` is at 2; the topic that the group
names does not begin with `__`, begins with `errors.deadletterqueue.topic.name.prefix`, and has
`errors.deadletterqueue.group.enable`. A missing one is created where
`errors.deadletterqueue.auto.create.topics.enable` allows it. One is ours: a topic that is compacted
takes none, as it would lose them, and refuse those without a key.

What a group rejects in its own dead-letter topic is archived: it would come back for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode, PenstockError
from penstock.base.ids import Uuid
from penstock.config.broker_config import BrokerConfig
from penstock.config.group_config import ShareGroupConfig, share_group_config
from penstock.config.log_config import LogConfig
from penstock.metadata.features import SHARE_VERSION
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

DEAD_LETTERS_FROM: Final = 2
"""The level of share.version from which there are dead letters."""
ENABLE: Final = "errors.deadletterqueue.group.enable"
_BY_BROKER: Final = -1
"""As many partitions and replicas as the broker's settings say."""


class NotWritable(PenstockError):
    """Dead letters cannot be written at the moment."""

    def __init__(self, reason: str, message: str) -> None:
        """`reason`: a word or two, for metrics."""
        super().__init__(message)
        self.reason = reason


class DeadLetterTopic(NamedTuple):
    name: str
    partitions: int
    max_bytes: int
    """How large a batch it takes."""
    copy: bool
    """Whether keys and values are copied."""


class DeadLetterTopics:
    def __init__(
        self,
        image: MetadataImage,
        config: Callable[[], BrokerConfig],
        topic_config: Callable[[str], LogConfig],
        create_topic: Callable[[CreatableTopic], Awaitable[ErrorCode]],
    ) -> None:
        self._image = image
        self._config = config
        self._topic_config = topic_config
        self._create_topic = create_topic

    def wanted(self, group_id: str, topic_id: Uuid) -> bool:
        """Whether what the group gives up of this topic becomes dead letters."""
        if self._image.features.get(SHARE_VERSION, 0) < DEAD_LETTERS_FROM:
            return False
        name = self._of_group(group_id).errors_deadletterqueue_topic_name
        source = self._image.topics_by_id.get(topic_id)
        return bool(name) and (source is None or source.name != name)

    def _of_group(self, group_id: str) -> ShareGroupConfig:
        return share_group_config(self._image.config(ResourceType.GROUP, group_id), self._config())

    async def find(self, group_id: str) -> DeadLetterTopic:
        """The topic, to be written to now; `NotWritable` if there is none that can be."""
        config = self._of_group(group_id)
        name, prefix = (
            config.errors_deadletterqueue_topic_name,
            self._config().errors_deadletterqueue_topic_name_prefix,
        )
        if not name.startswith(prefix):
            raise NotWritable("topic name", f"the name {name} does not begin with {prefix}")
        topic = self._image.topics.get(name)
        if topic is None:
            await self._create(name)
            topic = self._image.topics.get(name)
            if topic is None:
                raise NotWritable("no topic", f"the topic {name} is being created")
        of_topic = self._topic_config(name)
        if not of_topic.errors_deadletterqueue_group_enable:
            raise NotWritable("not enabled", f"the topic {name} does not have {ENABLE}")
        if "compact" in of_topic.cleanup_policy:
            raise NotWritable("compacted", f"the topic {name} is compacted")
        return DeadLetterTopic(
            name,
            len(topic.partitions),
            of_topic.max_message_bytes,
            config.errors_deadletterqueue_copy_record_enable,
        )

    async def _create(self, name: str) -> None:
        if not self._config().errors_deadletterqueue_auto_create_topics_enable:
            raise NotWritable("no topic", f"there is no topic {name}, and none may be created")
        settings = {ENABLE: "true", "message.timestamp.type": "CreateTime"}
        code = await self._create_topic(
            CreatableTopic(
                name=name,
                num_partitions=_BY_BROKER,
                replication_factor=_BY_BROKER,
                configs=[CreatableTopicConfig(name=n, value=v) for n, v in settings.items()],
            )
        )
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise NotWritable("no topic", f"the topic {name} could not be created: {code.name}")
