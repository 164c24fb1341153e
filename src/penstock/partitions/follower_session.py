"""A follower's side of an incremental fetch session: what the leader remembers of it.

The leader remembers where each partition was last asked for; a request names only those that have
moved since (`name`), and those that are to be left out (`leave`). Without a session, or after an
error, all are named again. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.config.broker_config import BrokerConfig
from penstock.partitions.partition import Partition
from penstock.wire.replica_fetch_codec import (
    FetchPosition,
    FetchRequestHead,
    encode_fetch_request,
)

Key: TypeAlias = tuple[Uuid, int]

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
NAMED_PER_REQUEST_MAX = 1_000
"""Partitions that one request names: some tens of milliseconds of the leader's time."""
_BEGIN_ANEW: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FollowerSession:
    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._asked: dict[Key, FetchPosition] = {}
        """What the leader was last asked for: its view of the session."""
        self._granted = True
        """Whether the leader keeps sessions, as far as is known."""
        self._to_name: dict[Key, None] = {}
        self._to_leave: dict[Key, None] = {}

    @property
    def wanted(self) -> bool:
        """Whether there is anything to ask for."""
        return bool(self._to_name) or len(self._asked) > len(self._to_leave)

    def to_name(self) -> list[Key]:
        return list(self._to_name)

    def name(self, key: Key) -> None:
        """Ask for the partition (again) with the next request."""
        self._to_leave.pop(key, None)
        self._to_name[key] = None

    def leave(self, key: Key) -> None:
        """Do not ask for the partition any more."""
        self._to_name.pop(key, None)
        if key in self._asked:
            self._to_leave[key] = None

    def reset(self, keys: Iterable[Key]) -> None:
        """The leader remembers nothing: ask for `keys` with a full request."""
        self._id, self._epoch = NO_SESSION_ID, INITIAL_EPOCH
        self._asked.clear()
        self._to_leave.clear()
        self._to_name = dict.fromkeys(keys)

    def asked(self, key: Key, partition: Partition) -> bool:
        """Whether the leader was asked for the partition as it is now."""
        asked, log = self._asked.get(key), partition.log
        return (
            asked is not None
            and asked.current_leader_epoch == partition.leader_epoch
            and asked.fetch_offset == log.log_end_offset
            and asked.last_fetched_epoch == log.epochs.latest_epoch
        )

    def answered(self, error_code: int, session_id: int) -> bool:
        """Process the head of a response; False when a new session is needed."""
        if error_code in _BEGIN_ANEW or (self._id and session_id != self._id):
            return False
        self._granted = session_id != NO_SESSION_ID
        if not self._granted:
            # Every request is a full one, without what was left since the last.
            asked = {key: None for key in self._asked if key not in self._to_leave}
            self._to_name = asked | self._to_name
            return not error_code
        self._id = session_id
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return not error_code

    def request(
        self,
        version: int,
        broker_epoch: int,
        config: BrokerConfig,
        partition_of: Callable[[Key], Partition],
    ) -> bytes:
        """The body of the next request.

        One names `NAMED_PER_REQUEST_MAX` partitions, so that the leader serves others in between;
        while more are to be named, the leader is asked to answer immediately.
        """
        topics: dict[Uuid, list[FetchPosition]] = {}
        named = list(islice(self._to_name, NAMED_PER_REQUEST_MAX if self._granted else None))
        for key in named:
            del self._to_name[key]
        for key in named:
            topic_id, index = key
            partition = partition_of(key)
            log = partition.log
            position = self._asked[key] = FetchPosition(
                index,
                partition.leader_epoch,
                log.log_end_offset,
                log.epochs.latest_epoch,
                log.log_start_offset,
                config.replica_fetch_max_bytes,
            )
            topics.setdefault(topic_id, []).append(position)
        forgotten: dict[Uuid, list[int]] = {}
        for key in self._to_leave:
            self._asked.pop(key, None)
            forgotten.setdefault(key[0], []).append(key[1])
        self._to_leave.clear()
        head = FetchRequestHead(
            self._node_id,
            broker_epoch,
            self._id,
            self._epoch,
            0 if self._to_name else config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
        )
        return encode_fetch_request(
            version, head, list(topics.items()), list(forgotten.items()) if self._id else ()
        )
