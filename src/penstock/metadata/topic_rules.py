"""What the settings say about elections in a topic.

The controller's own image is asked first, for the topic and then for the whole cluster: the node's
settings follow when a change is committed, and a decision builds on what was decided before.
"""

from __future__ import annotations

from typing import Final

from penstock.config.broker_config import broker_config
from penstock.config.layers import BrokerSettings
from penstock.config.log_config import TOPIC_SETTINGS
from penstock.config.table import Value
from penstock.metadata.image import MetadataImage, ResourceType

UNCLEAN_SETTING: Final = "unclean.leader.election.enable"
MIN_ISR_SETTING: Final = "min.insync.replicas"


class TopicRules:
    def __init__(self, image: MetadataImage, settings: BrokerSettings) -> None:
        self._image = image
        self._settings = settings

    def unclean(self, topic: str) -> bool:
        """Whether a leader that was not in sync may be elected."""
        value = self._stored(topic, UNCLEAN_SETTING)
        return (
            self._settings.config.unclean_leader_election_enable if value is None else bool(value)
        )

    def min_isr(self, topic: str) -> int:
        """How many replicas in sync it takes to commit, if there are as many."""
        value = self._stored(topic, MIN_ISR_SETTING)
        if isinstance(value, int):
            return value
        return self._settings.config.min_insync_replicas

    @property
    def static_min_isr(self) -> int:
        """What this node's own file says of `min.insync.replicas`."""
        return broker_config(self._settings.static).min_insync_replicas

    def _stored(self, topic: str, name: str) -> Value:
        cluster = self._image.config(ResourceType.BROKER, "")
        for settings in (self._image.topic_config(topic), cluster):
            text = settings.get(name)
            if text is not None:
                return TOPIC_SETTINGS[name].parse(text)
        return None
