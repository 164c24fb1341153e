"""Share groups, as a door sees them: ShareFetch and ShareAcknowledge.

Duty: who may ask; the share sessions of members; acknowledgements and records put together as one
answer. What lies behind: `share_partitions` (state), `share_read` (records), `share_acks`.

A member's session on this node ends when it says so or when its connection is lost; what it holds
is free for others then. With the last session of a group here its share-partitions leave memory.
Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps
from penstock.config.broker_config import BrokerConfig
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import SHARE_VERSION
from penstock.metadata.image import MetadataImage
from penstock.net.turn import begin, in_turns
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.rights import DENIED, TOPIC_DENIED, Rights
from penstock.serving.share_acks import RENEW_FROM, Acknowledger, Acknowledging, Member
from penstock.serving.share_answers import ShareAcknowledged, ShareAnswers
from penstock.serving.share_in_flight import (
    ShareFetch,
    ShareFetchInFlight,
    ShareFetchResult,
    ShareParams,
)
from penstock.serving.share_partitions import SharePartitions
from penstock.serving.share_read import ShareReads
from penstock.share.partition import AcquireMode
from penstock.share.session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, ShareSessions
from penstock.share.types import ShareKey
from penstock.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from penstock.wire.messages.share_fetch import ShareFetchResponse

log = logging.getLogger("penstock.serving")

MEMBER_ID_CHARS_MAX: Final = 36
RENEW_ALONE: Final = "max_bytes, min_bytes, max_records and max_wait_ms are 0 with is_renew_ack"
_DISABLED: Final = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are switched off")

OnFetched: TypeAlias = Callable[[ShareFetchResult], None]


class ShareService:
    def __init__(
        self,
        image: MetadataImage,
        replicas: ReplicaManager,
        partitions: SharePartitions,
        hints: LeaderHints,
        rights: Rights,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._rights = rights
        self.partitions = partitions
        self._config = config
        self.sessions = ShareSessions(config().group_share_max_share_sessions)
        self._reads = ShareReads(partitions, self.sessions, lambda: config().fetch_max_bytes)
        self._acks = Acknowledger(partitions, replicas, rights)
        self._answers = ShareAnswers(hints, partitions)
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[ShareSession, ShareFetchInFlight] = {}

    @property
    def _is_on(self) -> bool:
        """Whether the cluster has share groups."""
        return self._image.features.get(SHARE_VERSION, 0) > 0

    # -- who may ask ---------------------------------------------------------------------------

    def _check(self, principal: Principal, group_id: str | None, member_id: str | None) -> Member:
        if not self._is_on:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "share.version is 0")
        if group_id is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a share group has an id")
        if not self._rights.group(principal, Operation.READ, group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED)
        if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the id of a member has 1 to {MEMBER_ID_CHARS_MAX} characters",
            )
        return Member(principal, group_id, member_id)

    # -- fetching ------------------------------------------------------------------------------

    def fetch(self, request: ShareFetch, done: OnFetched) -> Callable[[], None] | None:
        """Have `done` called with the answer. Returns what to call if nobody wants it any more,
        while it is not there yet.
        """
        body, version = request.body, request.version
        try:
            member = self._check(request.principal, body.group_id, body.member_id)
            renews = body.is_renew_ack and version >= RENEW_FROM
            if renews and (
                body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms
            ):
                raise ApiError(ErrorCode.INVALID_REQUEST, RENEW_ALONE)
            session = self._session(member, request)
        except ApiError as e:
            if e.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED and body.max_wait_ms > 0:
                refuse = self._loop.call_later(body.max_wait_ms / 1000, _refuse_fetch, e, done)
                return refuse.cancel
            _refuse_fetch(e, done)
            return None
        self._supersede(session)
        flight = ShareFetchInFlight(
            self._reads,
            self._params(member, request),
            session,
            request.usage,
            lambda flight: self._fetched(flight, request, done),
        )
        self._in_flight[session] = flight
        begin(self._reads.guarded(flight, self._fetch(flight, member, request, renews=renews)))
        return None if flight.is_over else flight.cancel

    def _session(self, member: Member, request: ShareFetch) -> ShareSession:
        """The session of the request, as it is with it."""
        body, epoch = request.body, request.body.share_session_epoch
        _, group_id, member_id = member
        if epoch == FINAL_EPOCH:
            return self.sessions.ending(group_id, member_id)
        wanted = [(t.topic_id, p.partition_index) for t in body.topics for p in t.partitions]
        if epoch != INITIAL_EPOCH:
            forgotten = [(t.topic_id, i) for t in body.forgotten_topics_data for i in t.partitions]
            return self.sessions.updated(group_id, member_id, epoch, wanted, forgotten)
        self._supersede(self.sessions.get(group_id, member_id))
        acknowledges = any(p.acknowledgement_batches for t in body.topics for p in t.partitions)
        return self.sessions.opened(
            group_id, member_id, wanted, request.connection, acknowledges=acknowledges
        )

    def _supersede(self, session: ShareSession | None) -> None:
        """Have a fetch of this session that still waits answered: its member has sent another."""
        before = None if session is None else self._in_flight.pop(session, None)
        if before is not None:
            before.supersede()

    def _params(self, member: Member, request: ShareFetch) -> ShareParams:
        body = request.body
        max_bytes = body.max_bytes
        if request.usage is not None:
            max_bytes = min(max_bytes, request.usage.fetch_bytes_max())
        isolation = self.partitions.config(member.group_id).share_isolation_level
        return ShareParams(
            member.member_id,
            body.max_wait_ms,
            min(body.min_bytes, max_bytes),
            max_bytes,
            body.max_records,
            body.batch_size,
            AcquireMode.RECORD_LIMIT
            if body.share_acquire_mode == AcquireMode.RECORD_LIMIT
            else AcquireMode.BATCH_OPTIMIZED,
            isolation == "read_committed",
        )

    def _fetch(
        self, flight: ShareFetchInFlight, member: Member, request: ShareFetch, *, renews: bool
    ) -> Steps[None]:
        body = request.body
        yield from self._acks.begin(
            member, body.topics, flight.acks, version=request.version, renews=renews
        )
        epoch, params = body.share_session_epoch, flight.params
        if renews or epoch == FINAL_EPOCH:
            flight.fetched()
            return
        keys = []
        for topic_id, index in flight.session.in_turn(epoch):
            key = ShareKey(member.group_id, topic_id, index)
            try:
                self._check_partition(member.principal, key)
            except ApiError as e:
                flight.refuse(key, e)
            else:
                keys.append(key)
            yield
        if params.max_records <= 0 or params.max_bytes <= 0:
            flight.fetched()
        else:
            yield from self._reads.fetch(flight, keys)

    def _check_partition(self, principal: Principal, key: ShareKey) -> None:
        self._replicas.topic(key.topic_id)
        if not self._rights.topic(principal, Operation.READ, key.topic_id):
            raise TOPIC_DENIED
        self._replicas.registration(key.topic_id, key.partition)

    def _fetched(self, flight: ShareFetchInFlight, request: ShareFetch, done: OnFetched) -> None:
        session, epoch = flight.session, request.body.share_session_epoch
        if self._in_flight.get(session) is flight:
            del self._in_flight[session]
        if epoch == FINAL_EPOCH:
            self._end(session)
        elif not session.awaits(epoch):
            flight.found.clear()
            flight.response = ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            done(flight)
            return
        if flight.usage is not None and not flight.metered:
            flight.throttle_ms = flight.usage.requested()
        self._answers.fetch(flight, is_first=epoch == INITIAL_EPOCH)
        done(flight)

    # -- acknowledging -------------------------------------------------------------------------

    async def acknowledge(
        self, principal: Principal, body: ShareAcknowledgeRequest, version: int
    ) -> ShareAcknowledged:
        try:
            member = self._check(principal, body.group_id, body.member_id)
            _, group_id, member_id = member
            session = self.sessions.acknowledged(group_id, member_id, body.share_session_epoch)
        except ApiError as e:
            return ShareAcknowledged(ShareAcknowledgeResponse(error_code=e.code), set())
        over = self._loop.create_future()
        acks = Acknowledging(lambda: over.set_result(None))
        renews = body.is_renew_ack and version >= RENEW_FROM
        await in_turns(self._acks.begin(member, body.topics, acks, version=version, renews=renews))
        await over
        if body.share_session_epoch == FINAL_EPOCH:
            self._end(session)
        return self._answers.acknowledged(group_id, acks)

    # -- the ends of sessions ------------------------------------------------------------------

    def connection_lost(self, connection: Hashable) -> None:
        """The sessions that came by it end, and what their members hold is free for others."""
        for session in self.sessions.connection_lost(connection):
            self._ended(session)

    def _end(self, session: ShareSession) -> None:
        """The member has ended its session, unless it has another by now."""
        group_id, member_id = session.key
        if self.sessions.get(group_id, member_id) is session:
            self._ended(self.sessions.closed(group_id, member_id))

    def _ended(self, session: ShareSession) -> None:
        self._supersede(session)
        group_id, member_id = session.key
        for topic_id, index in session:
            try:
                driver = self.partitions.found(ShareKey(group_id, topic_id, index))
            except ApiError:
                continue  # it was never fetched from, or another node leads it now
            driver.release(member_id)
        if not self.sessions.sessions_of(group_id):
            self.partitions.group_unused(group_id)

    def end_waiting(self) -> None:
        """The node stops: fetches that wait are answered with what is there."""
        self._reads.end_waiting()

    def stop(self) -> None:
        self.partitions.drop_all(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node stops"))
        self._reads.stop()

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image, and the replicas follow it."""
        self.partitions.apply(delta)
        if delta.features_changed and not self._is_on:
            self.partitions.drop_all(_DISABLED)

    def settings_changed(self) -> None:
        """The node's own settings have changed."""
        self.sessions.sessions_max = self._config().group_share_max_share_sessions
        self.partitions.settings_changed()


def _refuse_fetch(error: ApiError, done: OnFetched) -> None:
    result = ShareFetchResult()
    result.response = ShareFetchResponse(error_code=error.code)
    done(result)
