"""The brokers' last signs of life: the controller's only state that is not in the log.

A broker's session lasts `broker.session.timeout.ms` from its last sign of life. A new controller
knows no signs of life yet and gives every broker a full session from its activation.

Silence counts only while this node was able to read: the time it was blocked is added to every
session (`held_up`). The session of the broker on this very node does not end once it has been heard
from: it is this process, and a slow disk, which also delays its heartbeats, does not mean that it
died. Until then what is registered may be an earlier run that is over, so its session ends as any
other, unless the broker is alone: nobody could take over.

A broker that has just registered is a newcomer: clients that had lost it may only try it again
after their back-off, up to `NEWCOMER_MS` later, so others had better lead meanwhile. All times
are milliseconds of one clock that never goes back; the caller brings them. Each question looks at
every broker once: there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.metadata.assignments import active
from penstock.metadata.image import Broker, MetadataImage

NO_OFFSET = -1
NEWCOMER_MS = 10_000
"""The longest that common clients leave a broker alone to which they could not connect."""


@dataclass(slots=True)
class Contact:
    """What one incarnation of a broker said last."""

    epoch: int
    last_ms: int
    silent_since_ms: int
    """When its silence starts to count: `last_ms` plus the time this node was blocked since."""
    metadata_offset: int = NO_OFFSET
    """The last metadata record that the broker has applied."""
    shutdown_offset: int = NO_OFFSET
    """The last record of the changes that took its leaderships, once it asked to shut down."""
    registered_ms: int | None = None
    """When it registered with this controller; None if that was with an earlier one."""


class EndedSession(NamedTuple):
    """Whose session is over, and the silence that counted."""

    broker_id: int
    silent_ms: int


class Liveness:
    def __init__(
        self,
        image: MetadataImage,
        node_id: int,
        session_timeout_ms: Callable[[], int],
        now_ms: int,
    ) -> None:
        self._image = image
        self._node_id = node_id
        self._timeout_ms = session_timeout_ms
        self._active_since_ms = now_ms
        self._silent_since_ms = now_ms
        """When the silence of brokers without a sign of life starts to count."""
        self._contacts: dict[int, Contact] = {}

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> Contact:
        """Notes a sign of life of this incarnation, and returns what is known of it."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.epoch != epoch:
            contact = self._contacts[broker_id] = Contact(epoch, now_ms, now_ms)
        contact.last_ms = max(contact.last_ms, now_ms)
        contact.silent_since_ms = max(contact.silent_since_ms, now_ms)
        return contact

    def held_up(self, ms: int, now_ms: int) -> None:
        """For `ms` up to now this node read nothing of what others may have sent."""
        self._silent_since_ms = min(self._silent_since_ms + ms, now_ms)
        for contact in self._contacts.values():
            contact.silent_since_ms = min(contact.silent_since_ms + ms, now_ms)

    def registered(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Notes that a new incarnation has registered."""
        self.heard(broker_id, epoch, now_ms).registered_ms = now_ms

    def newcomers(self) -> dict[int, int]:
        """When each newcomer registered, as of the last sign of life of any broker."""
        now_ms = max((contact.last_ms for contact in self._contacts.values()), default=0)
        return {
            broker_id: contact.registered_ms
            for broker_id, contact in self._contacts.items()
            if contact.registered_ms is not None and now_ms < contact.registered_ms + NEWCOMER_MS
        }

    def heard_from(self, broker: Broker) -> bool:
        """Whether this incarnation gave a sign of life to this controller."""
        contact = self._contacts.get(broker.id)
        return contact is not None and contact.epoch == broker.epoch

    def last_heard_ms(self, broker: Broker) -> int:
        contact = self._contacts.get(broker.id)
        if contact is None or contact.epoch != broker.epoch:
            return self._active_since_ms
        return contact.last_ms

    def has_session(self, broker: Broker, now_ms: int) -> bool:
        """Whether the broker is unfenced and counts as alive."""
        return not broker.fenced and (self._is_here(broker) or now_ms < self._end_ms(broker))

    def overdue(self, now_ms: int) -> EndedSession | None:
        """The session of an unfenced broker that ended first."""
        late = [b for b in self._that_may_end() if self._end_ms(b) <= now_ms]
        first = min(late, key=self._end_ms, default=None)
        return None if first is None else EndedSession(first.id, now_ms - self._since_ms(first))

    def next_end_ms(self) -> int | None:
        """When the next session ends, unless a sign of life comes before."""
        return min(map(self._end_ms, self._that_may_end()), default=None)

    def lowest_active_offset(self) -> int | None:
        """The metadata offset that every active broker has reached; None without such brokers."""
        offsets = []
        for broker in self._image.brokers.values():
            if active(broker):
                contact = self._contacts.get(broker.id)
                known = contact is not None and contact.epoch == broker.epoch
                offsets.append(contact.metadata_offset if known and contact else NO_OFFSET)
        return min(offsets, default=None)

    def _that_may_end(self) -> list[Broker]:
        brokers = self._image.brokers.values()
        return [broker for broker in brokers if not broker.fenced and not self._is_here(broker)]

    def _is_here(self, broker: Broker) -> bool:
        """Whether the broker is this process, as far as that matters to its session."""
        alone = len(self._image.brokers) == 1
        return broker.id == self._node_id and (alone or self.heard_from(broker))

    def _since_ms(self, broker: Broker) -> int:
        contact = self._contacts.get(broker.id)
        if contact is None or contact.epoch != broker.epoch:
            return self._silent_since_ms
        return contact.silent_since_ms

    def _end_ms(self, broker: Broker) -> int:
        return self._since_ms(broker) + self._timeout_ms()
