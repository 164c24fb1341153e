"""Decisions about brokers: registration, fencing, shutdown, and the leaders that follow from them.

A broker that stops being alive leaves the in-sync sets, and loses its leaderships to the first
living replica that may lead; what becomes of the last one in sync, and who stays eligible, is
decided in `partition_change.py`. One that starts again and may have lost data is not eligible any
more. A broker that comes alive leads what waits for it. Naming a leader always starts a new leader
epoch, also when it is the same broker again: after a restart its log may end earlier than before,
and the epoch is how readers find out.

What a broker's heartbeat leads to, by the state it is in:

    fenced              wants to shut down           -> it may go at once
    fenced              wants to serve, has caught up -> unfenced
    unfenced            wants to be fenced           -> fenced
    unfenced            wants to shut down           -> its leaderships move; without any it may go
    in shutdown         leads nothing, and all have heard of it -> fenced, it may go

"Has caught up" means that it has applied its own registration; "all have heard" that it and every
active broker have applied the records that moved its leaderships, so that clients find the new
leaders wherever they ask. Each decision costs by what the broker holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import METADATA_TOPIC_ID, ZERO_UUID, uuid_text
from penstock.metadata.features import NOT_SUPPORTED, levels_of
from penstock.metadata.image import Broker, MetadataImage, broker_of
from penstock.metadata.liveness import NO_OFFSET, Contact, Liveness
from penstock.metadata.partition_change import PartitionChanges, Target
from penstock.metadata.partition_index import PartitionIndex, Place
from penstock.metadata.records import (
    CORDONED_LOG_DIRS_FROM,
    METADATA_VERSION,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from penstock.metadata.topic_rules import TopicRules
from penstock.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest

RESERVED_DIRECTORIES = frozenset({ZERO_UUID, METADATA_TOPIC_ID})
"""Ids that mean "not assigned" and "lost" where a data folder's id is expected."""


class _Outcome(NamedTuple):
    """What a heartbeat leads to."""

    records: list[MetadataRecord]
    fenced: bool
    may_go: bool = False


class BrokerControl:
    def __init__(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        liveness: Liveness,
        rules: TopicRules,
        cluster_id: str,
        node_id: int,
    ) -> None:
        self._image = image
        self._index = index
        self._liveness = liveness
        self._rules = rules
        self._cluster_id = cluster_id
        self._node_id = node_id

    # -- registration --------------------------------------------------------------------------

    def register(
        self, request: BrokerRegistrationRequest, epoch: int, now_ms: int
    ) -> tuple[list[MetadataRecord], int]:
        """A broker that starts; `epoch` is the log offset that its record will have.

        The same incarnation, asking again, keeps its epoch and its state. A new one starts fenced,
        leaves the in-sync sets and has to catch up, unless its data is intact: then it stays
        eligible, and in sync where it may be the only member that is left. Only a broker without
        peers leads at once, as there is nobody whom it could be behind.
        """
        existing = self._image.brokers.get(request.broker_id)
        self._check_registration(request, existing, now_ms)
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in request.listeners
            ],
            features=_features(request),
            rack=request.rack,
            log_dirs=list(request.log_dirs),
        )
        if existing is not None and existing.incarnation_id == request.incarnation_id:
            record.broker_epoch = existing.epoch
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            record.cordoned_log_dirs = list(existing.cordoned_log_dirs) or None
            self._liveness.heard(request.broker_id, record.broker_epoch, now_ms)
            return [record], record.broker_epoch
        intact = speaks_for(request, existing)
        if all(broker_id == request.broker_id for broker_id in self._image.brokers):
            record.fenced = False
            changes = self._return(broker_of(record), restarted=True, intact=intact)
        else:
            changes = self._leave(request.broker_id, intact=intact, restarted=True)
        records = [record, *changes]
        self._liveness.registered(request.broker_id, record.broker_epoch, now_ms)
        return records, record.broker_epoch

    def _check_registration(
        self, request: BrokerRegistrationRequest, existing: Broker | None, now_ms: int
    ) -> None:
        if request.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._cluster_id}, not {request.cluster_id}: the data folder of "
                f"broker {request.broker_id} belongs to another cluster",
            )
        # The node that runs this controller is alive for sure; what it knows of an earlier run of
        # itself is from the log, and ended with it.
        restarted = (
            existing is not None
            and existing.id == self._node_id
            and not self._liveness.heard_from(existing)
        )
        if (
            existing is not None
            and existing.incarnation_id != request.incarnation_id
            and self._liveness.has_session(existing, now_ms)
            and not restarted
        ):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"a broker {request.broker_id} is alive already; if it was just restarted, this "
                "resolves itself when the session of its earlier run has ended",
            )
        self._check_directories(request)
        named = levels_of(_features(request))
        if METADATA_VERSION not in named:
            raise _refused(request, f"does not say which levels of {METADATA_VERSION} it supports")
        for name, finalized in self._image.features.items():
            if finalized not in named.get(name, NOT_SUPPORTED):
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the cluster is at level {finalized} of {name}, and broker "
                    f"{request.broker_id} supports {named.get(name, 'none')}: start it with a "
                    "release that has this level",
                )

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        directories = request.log_dirs
        why = None
        if not directories:
            why = "names no data folder"
        elif RESERVED_DIRECTORIES & set(directories):
            why = "gives a data folder an id that has another meaning"
        elif len(set(directories)) != len(directories):
            why = "names a data folder twice"
        for other in self._image.brokers.values():
            shared = set(other.log_dirs) & set(directories)
            if other.id != request.broker_id and shared:
                taken = uuid_text(min(shared))
                why = f"names data folder {taken}, which is registered for broker {other.id}"
        if why is not None:
            raise _refused(request, why)

    def unregister(self, broker_id: int) -> list[MetadataRecord]:
        broker = self.registered(broker_id)
        record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
        return [*self._leave(broker_id), record]

    def registered(self, broker_id: int) -> Broker:
        broker = self._image.brokers.get(broker_id)
        if broker is None:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered"
            )
        return broker

    def check_epoch(self, broker_id: int, epoch: int) -> None:
        """Raises `ApiError` unless the request comes from the broker's registered incarnation."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            now = "not registered" if broker is None else f"registered with epoch {broker.epoch}"
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} of epoch {epoch} is an earlier run: it is {now}",
            )

    # -- heartbeats ----------------------------------------------------------------------------

    def heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int
    ) -> tuple[list[MetadataRecord], BrokerHeartbeatResponse]:
        """`next_offset` is the log offset that the first record of this decision will have."""
        broker = self.registered(request.broker_id)
        self.check_epoch(broker.id, request.broker_epoch)
        contact = self._liveness.heard(broker.id, broker.epoch, now_ms)
        contact.metadata_offset = max(contact.metadata_offset, request.current_metadata_offset)
        caught_up = contact.metadata_offset >= broker.epoch
        if broker.fenced:
            outcome = self._fenced_heartbeat(broker, request, caught_up)
        elif broker.in_controlled_shutdown:
            outcome = self._stopping_heartbeat(broker, request, contact, next_offset)
        else:
            outcome = self._unfenced_heartbeat(broker, request, contact, next_offset)
        outcome.records.extend(self._cordoned(broker, request))
        return outcome.records, BrokerHeartbeatResponse(
            is_caught_up=caught_up, is_fenced=outcome.fenced, should_shut_down=outcome.may_go
        )

    def _fenced_heartbeat(
        self, broker: Broker, request: BrokerHeartbeatRequest, caught_up: bool
    ) -> _Outcome:
        if request.want_shut_down:
            return _Outcome([], fenced=True, may_go=True)
        if request.want_fence or not caught_up:
            return _Outcome([], fenced=True)
        return _Outcome(self.unfence(broker.id), fenced=False)

    def _unfenced_heartbeat(
        self, broker: Broker, request: BrokerHeartbeatRequest, contact: Contact, next_offset: int
    ) -> _Outcome:
        if request.want_fence:
            return _Outcome(self.fence(broker.id), fenced=True, may_go=request.want_shut_down)
        if not request.want_shut_down:
            return _Outcome([], fenced=False)
        if not self._index.leading[broker.id]:
            return _Outcome(self.fence(broker.id), fenced=True, may_go=True)
        records = self.begin_shutdown(broker.id)
        contact.shutdown_offset = next_offset + len(records) - 1
        return _Outcome(records, fenced=False)

    def _stopping_heartbeat(
        self, broker: Broker, request: BrokerHeartbeatRequest, contact: Contact, next_offset: int
    ) -> _Outcome:
        if self._index.leading[broker.id]:
            return _Outcome(list(self._leave(broker.id)), fenced=False)
        if contact.shutdown_offset == NO_OFFSET:
            # An earlier controller moved the leaderships: at the latest with its last record.
            contact.shutdown_offset = next_offset - 1
        lowest = self._liveness.lowest_active_offset()
        heard = lowest is None or lowest >= contact.shutdown_offset
        if request.want_fence or (heard and contact.metadata_offset >= contact.shutdown_offset):
            return _Outcome(self.fence(broker.id), fenced=True, may_go=True)
        return _Outcome([], fenced=False)

    def _cordoned(
        self, broker: Broker, request: BrokerHeartbeatRequest
    ) -> Iterator[MetadataRecord]:
        cordoned = request.cordoned_log_dirs
        if cordoned is None or self._image.metadata_version < CORDONED_LOG_DIRS_FROM:
            return
        known = tuple(d for d in broker.log_dirs if d in cordoned)
        if known != broker.cordoned_log_dirs:
            yield BrokerRegistrationChangeRecord(
                broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(known)
            )

    # -- coming and going ----------------------------------------------------------------------

    def fence(self, broker_id: int, *, intact: bool = False) -> list[MetadataRecord]:
        """The broker is not heard from, or has handed over and goes, or is known to have started
        again with its data `intact`.
        """
        return [self._change(broker_id, fenced=1), *self._leave(broker_id, intact=intact)]

    def unfence(self, broker_id: int) -> list[MetadataRecord]:
        """The broker has caught up with the metadata and can serve."""
        return [
            self._change(broker_id, fenced=-1),
            *self._return(self.registered(broker_id)),
        ]

    def begin_shutdown(self, broker_id: int) -> list[MetadataRecord]:
        """The broker asked to stop: it hands over first."""
        return [self._change(broker_id, in_controlled_shutdown=1), *self._leave(broker_id)]

    def _change(
        self, broker_id: int, fenced: int = 0, in_controlled_shutdown: int = 0
    ) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=self.registered(broker_id).epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )

    def _leave(
        self, broker_id: int, *, intact: bool = False, restarted: bool = False
    ) -> Iterator[MetadataRecord]:
        """The broker leads nothing any more and leaves the in-sync sets.

        One that has started again with its data `intact` stays where this controller has heard
        from no other member: after all nodes died at once the others may never come back. One that
        has `restarted` and may have lost data is not eligible any more.
        """
        changes = PartitionChanges(
            self._image, self._rules, leaving=broker_id, newcomers=self._liveness.newcomers()
        )
        unclean = broker_id if restarted and not intact else None
        for place in self._index.held_by(broker_id):
            partition = place.partition
            if broker_id in partition.isr or (unclean is not None and broker_id in partition.elr):
                others = [b for b in partition.isr if b != broker_id]
                stays = intact and not any(map(self._heard_from, others))
                target = None if stays else Target(isr=others, not_eligible=unclean)
                record = changes.record(place, changes.usual(place.topic.name), target)
                if record is not None:
                    yield record

    def _heard_from(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and self._liveness.heard_from(broker)

    def _return(
        self, broker: Broker, *, restarted: bool = False, intact: bool = True
    ) -> Iterator[MetadataRecord]:
        """What a broker that comes alive leads; a restarted one leads again what it led, in a new
        epoch.
        """
        changes = PartitionChanges(self._image, self._rules, coming=broker)
        target = Target(not_eligible=None if intact else broker.id)
        for key in list(self._index.leaderless):
            place = self._index.at(key)
            if broker.id in place.partition.replicas:
                record = changes.record(place, changes.usual(place.topic.name), target)
                if record is not None:
                    yield record
        if restarted:
            for place in self._index.held_by(broker.id):
                if place.partition.leader == broker.id:
                    yield _again(place)


def speaks_for(request: BrokerRegistrationRequest, earlier: Broker | None) -> bool:
    """Whether the registering broker has all that its `earlier` run had written."""
    return earlier is not None and request.previous_broker_epoch == earlier.epoch


def _again(place: Place) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=place.index, topic_id=place.topic.id, leader=place.partition.leader
    )


def _refused(request: BrokerRegistrationRequest, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REGISTRATION, f"the registration of broker {request.broker_id} {why}"
    )


def _features(request: BrokerRegistrationRequest) -> list[BrokerFeature]:
    return [
        BrokerFeature(
            name=f.name,
            min_supported_version=f.min_supported_version,
            max_supported_version=f.max_supported_version,
        )
        for f in request.features
    ]
