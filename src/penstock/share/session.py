"""Share sessions: what each member of a share group fetches from this broker.

A session belongs to one member of a group. It begins with a fetch of epoch 0, which replaces an
older one of the member and may not acknowledge anything. Each further request names the session's
epoch, which is then one higher (after 2^31 - 1 comes 1). Epoch -1 ends it, after what the request
acknowledges. It ends, too, with the connection that opened it. Whoever ends a session releases
what the member holds; one that is replaced leaves its member in possession.

Kafka's rules. It knows one session per connection, and so may keep one whose connection is lost;
here all sessions of a connection end.

At most `sessions_max` sessions (`group.share.max.share.sessions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.base.ids import Uuid

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1

Partition: TypeAlias = tuple[Uuid, int]
"""A topic's id and the number of a partition."""


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


def epoch_after(epoch: int) -> int:
    """The epoch of a session's next request."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


def rotated(partitions: list[Partition], epoch: int) -> list[Partition]:
    """Each request begins with another partition, so that none starves."""
    if epoch < 1 or not partitions:
        return partitions
    turn = epoch % len(partitions)
    return partitions[turn:] + partitions[:turn]


class ShareSession:
    __slots__ = ("_partitions", "connection_key", "epoch", "key")

    def __init__(self, key: SessionKey, connection_key: Hashable) -> None:
        self.key = key
        self.connection_key = connection_key
        self.epoch = epoch_after(INITIAL_EPOCH)
        """Which the next request has to name."""
        self._partitions: dict[Partition, bool] = {}
        """In the order in which they are served; whether the next answer has to name them."""

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._partitions

    def in_turn(self, epoch: int) -> list[Partition]:
        """The partitions, in the order in which the request of this epoch is served."""
        return rotated(list(self._partitions), epoch)

    def awaits(self, epoch: int) -> bool:
        """Whether the request of this epoch is the last one that was taken up."""
        return self.epoch == epoch_after(epoch)

    def must_answer(self, partition: Partition, *, records: bool, error: bool) -> bool:
        """Whether an answer names the partition: new ones, records, errors and their end.

        Called once for each answer. What had records is served last from now on.
        """
        if partition not in self._partitions:
            return records or error
        told = not self._partitions[partition]
        if records:
            del self._partitions[partition]
        self._partitions[partition] = error
        return records or error or not told

    def _changed(self, wanted: Iterable[Partition], forgotten: Iterable[Partition]) -> None:
        for partition in wanted:
            self._partitions.setdefault(partition, True)
        for partition in forgotten:
            self._partitions.pop(partition, None)

    def _begun_with(self, wanted: Iterable[Partition]) -> None:
        """The first answer names all of them, so later ones need not."""
        self._partitions = dict.fromkeys(wanted, False)


class ShareSessions:
    """The sessions of all groups on this broker."""

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        self.evicted = 0
        """Sessions that ended with their connection, ever."""
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, set[SessionKey]] = {}
        self._by_group: Counter[str] = Counter()
        self._members: Counter[tuple[str, Uuid, int]] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions of all sessions."""
        return self._members.total()

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get(SessionKey(group_id, member_id))

    def sessions_of(self, group_id: str) -> int:
        return self._by_group[group_id]

    def members_of(self, group_id: str, topic_id: Uuid, partition: int) -> int:
        """How many sessions of a group fetch a partition."""
        return self._members[(group_id, topic_id, partition)]

    # -- requests ------------------------------------------------------------------------------

    def opened(
        self,
        group_id: str,
        member_id: str,
        partitions: Collection[Partition],
        connection_key: Hashable,
        *,
        acknowledges: bool = False,
    ) -> ShareSession:
        """A fetch of epoch 0."""
        if acknowledges:
            message = "a share session cannot begin with acknowledgements"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        key = SessionKey(group_id, member_id)
        if key in self._sessions:
            self._remove(key)
        if len(self._sessions) >= self.sessions_max:
            message = "this broker has as many share sessions as it may; try again later"
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, message)
        session = ShareSession(key, connection_key)
        session._begun_with(partitions)
        self._sessions[key] = session
        self._by_connection.setdefault(connection_key, set()).add(key)
        self._by_group[group_id] += 1
        self._count(session, 1)
        return session

    def updated(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        partitions: Collection[Partition] = (),
        forgotten: Collection[Partition] = (),
    ) -> ShareSession:
        """A further fetch. Those partitions join that are not forgotten in the same request."""
        session = self._at(group_id, member_id, epoch)
        if partitions or forgotten:
            self._count(session, -1)
            session._changed(partitions, forgotten)
            self._count(session, 1)
        session.epoch = epoch_after(session.epoch)
        return session

    def acknowledged(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """A request that only acknowledges. It cannot begin a session; with -1 it is to end it."""
        if epoch == INITIAL_EPOCH:
            message = "a share session begins with a fetch"
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, message)
        if epoch == FINAL_EPOCH:
            return self.ending(group_id, member_id)
        return self.updated(group_id, member_id, epoch)

    def ending(self, group_id: str, member_id: str) -> ShareSession:
        """The session of a request of epoch -1, which ends (`closed`) when it is answered."""
        session = self.get(group_id, member_id)
        if session is None:
            message = "the member has no share session here; begin one with epoch 0"
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, message)
        return session

    def closed(self, group_id: str, member_id: str) -> ShareSession:
        """Ends a session: what its member holds is to be released."""
        return self._remove(self.ending(group_id, member_id).key)

    def connection_lost(self, connection_key: Hashable) -> list[ShareSession]:
        """Ends the sessions that were opened over a connection."""
        ended = [self._remove(key) for key in sorted(self._by_connection.get(connection_key, ()))]
        self.evicted += len(ended)
        return ended

    def _at(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        session = self.ending(group_id, member_id)
        if epoch != session.epoch:
            message = f"the epoch of the share session is {session.epoch}, not {epoch}"
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, message)
        return session

    def _remove(self, key: SessionKey) -> ShareSession:
        session = self._sessions.pop(key)
        keys = self._by_connection[session.connection_key]
        keys.remove(key)
        if not keys:
            del self._by_connection[session.connection_key]
        self._by_group[key.group_id] -= 1
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]
        self._count(session, -1)
        return session

    def _count(self, session: ShareSession, by: int) -> None:
        group_id, members = session.key.group_id, self._members
        for topic_id, partition in session:
            place = (group_id, topic_id, partition)
            members[place] += by
            if not members[place]:
                del members[place]

    def invariants(self) -> None:
        members: Counter[tuple[str, Uuid, int]] = Counter()
        connections: dict[Hashable, set[SessionKey]] = {}
        for key, session in self._sessions.items():
            invariant(session.key == key, "a session is kept under another's key")
            members.update((key.group_id, *partition) for partition in session)
            connections.setdefault(session.connection_key, set()).add(key)
        invariant(members == self._members, "the members of a partition are miscounted")
        invariant(connections == self._by_connection, "a session has no connection")
        invariant(
            Counter(key.group_id for key in self._sessions) == self._by_group,
            "the sessions of a group are miscounted",
        )
