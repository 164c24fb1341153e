"""Which topics the members of a classic group consume, as far as the coordinator knows.

Only members of protocol type `consumer` say so in a form that is known here. Whoever writes
something else or something broken into that place is served all the same: the topics are then
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.wire.errors import WireError
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription

VERSION_BYTES: Final = 2
"""The length of the version before the subscription. The topics are the same in all versions, so
all are read as version 0."""


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in the metadata of consumers; None if one of them cannot be read."""
    topics: set[str] = set()
    try:
        for raw in set(metadata):
            subscription, _ = ConsumerProtocolSubscription.decode_from(raw, VERSION_BYTES, 0)
            topics.update(subscription.topics)
    except WireError:
        return None
    return frozenset(topics)
