"""The broker: puts the services together for the doors, and follows the metadata.

Only `node/` uses it; doors get its `services`. Owned by the event loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from penstock.auth.authorizer import Authorizer
from penstock.auth.types import Operation
from penstock.base.clock import Clock, Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import uuid_text
from penstock.config.broker_audit import CONSUME, MANAGEMENT, PUBLISH
from penstock.config.broker_cluster import RACK_AWARE_SELECTOR
from penstock.config.broker_config import BrokerConfig
from penstock.config.layers import BrokerSettings
from penstock.config.log_config import KEY_ID, LogConfig, log_config
from penstock.controlling.controller_access import ControllerAccess
from penstock.controlling.metadata_log import metadata_log_config
from penstock.controlling.quorum_driver import QuorumDriver
from penstock.controlling.suspicions import Suspicions
from penstock.coordinating.consumed_offsets import ConsumedOffsets
from penstock.coordinating.consumed_retention import ConsumedRetention
from penstock.coordinating.coordinators import CoordinatorEnvironment
from penstock.coordinating.end_offsets import EndOffsets
from penstock.coordinating.group_coordinator import GroupCoordinator
from penstock.coordinating.producer_ids import ProducerIdManager
from penstock.coordinating.share_coordinator import ShareCoordinator
from penstock.coordinating.share_persister import SharePersister
from penstock.coordinating.transaction_coordinator import TransactionCoordinator
from penstock.coordinating.transaction_markers_here import MarkersHere
from penstock.coordinating.transaction_verification import TransactionVerifier
from penstock.coordinating.transactional_commits import TransactionalCommits
from penstock.log.manager import LogManager
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.observe.logs import set_level
from penstock.observe.standard import TopicMetrics
from penstock.partitions.flusher import Flusher
from penstock.partitions.metadata_brokers import MetadataBrokers
from penstock.partitions.read_replica import ReplicaSelector
from penstock.partitions.replica_environment import ReplicaEnvironment
from penstock.partitions.replica_fetcher import FetcherEnvironment
from penstock.partitions.replica_manager import ReplicaManager
from penstock.partitions.replication import Replication
from penstock.partitions.replication_quota import ReplicationQuota, on_follower, on_leader
from penstock.partitions.turns import Turns
from penstock.peers.peers import Peers
from penstock.serving.append import AppendService
from penstock.serving.append_verification import AppendVerification
from penstock.serving.audit_log import AuditLog
from penstock.serving.audit_topic import AuditTopic
from penstock.serving.audited import Append, Read, audited_append, audited_read
from penstock.serving.cluster import ClusterService
from penstock.serving.controller_rights import ControllerRights
from penstock.serving.groups import GroupService
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.log_dirs import LogDirService
from penstock.serving.offsets import OffsetService
from penstock.serving.quorum import QuorumService
from penstock.serving.quotas import QuotaService
from penstock.serving.read import ReadService
from penstock.serving.read_plan import ReadPlanner
from penstock.serving.read_session import FetchSessionCache
from penstock.serving.records import RecordService
from penstock.serving.rights import Rights
from penstock.serving.security import SecurityService
from penstock.serving.services import CountError, Services
from penstock.serving.settings import SettingService
from penstock.serving.share import ShareService
from penstock.serving.share_groups import ShareGroupService
from penstock.serving.share_partitions import SharePartitions
from penstock.serving.share_states import ShareStateService
from penstock.serving.streams_topics import StreamsTopics
from penstock.serving.telemetry import TelemetryService
from penstock.serving.topics import TopicService
from penstock.serving.transactions import TransactionService
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

log = logging.getLogger("penstock.serving")


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        quorum: QuorumDriver,
        peers: Peers,
        logs: LogManager,
        topic_metrics: TopicMetrics,
        count_error: CountError,
        clock: Clock,
        rng: Rng,
        authorizer: Authorizer | None = None,
    ) -> None:
        """Without an authorizer everybody may do everything."""
        self.settings = settings
        self.quorum = quorum
        self.peers = peers
        self.metadata: MetadataImage = quorum.metadata.image
        self.rights = Rights(self.metadata, authorizer)
        guard = ControllerRights(self.rights, self.metadata) if self.rights.active else None
        self.quotas = QuotaService(self.metadata, self.rights, settings.config, clock)
        self.telemetry = TelemetryService(settings.config, self.metadata, clock, rng)
        self.controller = ControllerAccess(quorum, peers, guard, self.quotas.mutations)
        self.logs = logs
        self.clock = clock
        self.node_id = settings.config.node_id
        self.turns = Turns()
        self.flusher = Flusher()
        self.brokers = MetadataBrokers(self.metadata, peers.ways.brokers)
        replica_env = self._replica_environment()
        self.replicas = ReplicaManager(
            self.metadata,
            logs,
            replica_env,
            topic_metrics,
            self.topic_config,
            validation=lambda: self.config.penstock_record_validation,
        )
        hints = LeaderHints(self.metadata, self.replicas)
        self.reads = self._read_service(hints)
        self.fetch_sessions = FetchSessionCache(
            settings.config.max_incremental_fetch_session_cache_slots, rng.below
        )
        self.producer_ids = ProducerIdManager(self._next_producer_ids)
        coordinating = self._coordinator_environment(rng)
        self.share_states = ShareCoordinator(coordinating)
        self.persister = SharePersister(self.node_id, self.brokers, peers, self.share_states)
        self.share = self._share_service(hints)
        ends = EndOffsets(self.node_id, self.metadata, self.replicas, self.brokers, peers)
        self.groups = GroupCoordinator(coordinating, self.persister, ends)
        self.consumed = self._consumed_retention()
        self.markers_here = MarkersHere(self.replicas, clock, self.groups.end_transaction)
        self.transactions = TransactionCoordinator(
            coordinating,
            self.brokers,
            peers,
            take_producer_id=self.producer_ids.take,
            write_markers_here=self.markers_here.write,
        )
        self.verifier = TransactionVerifier(self.node_id, self.brokers, peers, self.transactions)
        self.appends = self._append_service(hints)
        replica_env.on_append_failed = self.appends.write_failed
        self.transactional_commits = TransactionalCommits(
            self.groups, self.replicas, self.verifier, clock, lambda: self.config
        )
        self.replication: Replication | None = None
        self.on_settings_changed: Callable[[BrokerConfig], None] = lambda _: None
        """Called when dynamic settings were taken over, for what is not the broker's own."""
        self.suspicions = Suspicions(self.metadata, self.node_id)
        peers.on_lost = self.suspicions.connection_lost
        self.cluster = ClusterService(
            self.node_id, self.metadata, self.controller, self.suspicions, hints, self.rights
        )
        self.topics = self._topic_service()
        self.streams_topics = StreamsTopics(self.groups, self.topics, self.rights, self.clock)
        self.audit = self._audit_log(rng)
        self.services = self._services(count_error)
        quorum.metadata.on_committed(self.apply)

    def _topic_service(self) -> TopicService:
        return TopicService(
            self.metadata,
            self.replicas,
            self.controller,
            self.groups,
            self.transactions,
            self.share_states,
            self.settings,
            self.rights,
        )

    def _services(self, count_error: CountError) -> Services:
        """What the doors may call."""
        node_id, image, replicas = self.node_id, self.metadata, self.replicas
        rights, audit = self.rights, self.audit
        append: Append = self.appends.append
        read: Read = self.reads.read
        if audit is not None and audit.has(PUBLISH):
            append = audited_append(append, audit, image)
        if audit is not None and audit.has(CONSUME):
            read = audited_read(read, audit, image)
        return Services(
            append=append,
            read=read,
            sessions=self.fetch_sessions,
            topics=self.topics,
            records=RecordService(replicas, rights),
            offsets=OffsetService(replicas, self.logs, rights),
            log_dirs=LogDirService(node_id, image, self.logs, replicas, rights),
            groups=GroupService(
                self.groups, self.transactional_commits, self.streams_topics, rights
            ),
            share=self.share,
            share_groups=ShareGroupService(self.groups.share, rights),
            transactions=TransactionService(
                self.transactions, self.producer_ids, self.markers_here, rights
            ),
            share_states=ShareStateService(self.share_states, rights),
            settings=SettingService(node_id, image, self.settings, replicas, rights),
            cluster=self.cluster,
            security=SecurityService(image, rights, self.settings),
            quorum=QuorumService(self.quorum, rights, self.config.controller_listeners),
            quotas=self.quotas,
            telemetry=self.telemetry,
            count_error=count_error,
            now_ms=self.clock.now_ms,
            audit=audit,
        )

    def _audit_log(self, rng: Rng) -> AuditLog | None:
        """None where nothing is audited; events of other nodes are taken all the same."""
        config, rights = self.config, self.rights
        topic = AuditTopic(
            config,
            self.metadata,
            self.replicas,
            self.brokers,
            self.peers,
            self.clock,
            rights,
            self._create_topic,
        )
        self.appends.take_from_node = topic.take
        if not config.penstock_audit_enable:
            return None
        run = uuid_text(rng.uuid())
        audit = AuditLog(config, self.node_id, run, topic.write, self.clock)
        audit.is_node = lambda who: rights.cluster_shows(who, Operation.CLUSTER_ACTION)
        rights.on_denied = audit.denied
        rights.before_change = lambda who: audit.require(MANAGEMENT, who)
        self.topics.audit = audit
        return audit

    def start_replication(self) -> None:
        """The metadata has caught up and this broker is registered: open the replicas and start
        replication.
        """
        quota = ReplicationQuota(
            self.node_id,
            self.clock,
            on_follower,
            lambda: self.config.follower_replication_throttled_rate,
        )
        env = FetcherEnvironment(self.node_id, self.peers, self.brokers, quota, lambda: self.config)
        self.replication = Replication(self.replicas, env, self.controller.ask)
        self.replication.start()

    def _replica_environment(self) -> ReplicaEnvironment:
        return ReplicaEnvironment(
            self.node_id,
            self.brokers,
            self.clock,
            self.turns,
            self.flusher,
            lag_time_max_ms=lambda: self.config.replica_lag_time_max_ms,
            backoff_max_ms=lambda: self.config.replica_fetch_backoff_ms,
            follower_reads=self.config.replica_selector_class == RACK_AWARE_SELECTOR,
        )

    def _coordinator_environment(self, rng: Rng) -> CoordinatorEnvironment:
        return CoordinatorEnvironment(
            self.config,
            self.metadata,
            self.replicas,
            self.clock,
            rng,
            create_topic=self._create_topic,
        )

    def _append_service(self, hints: LeaderHints) -> AppendService:
        clock = self.clock
        verification = AppendVerification(self.replicas, self.verifier, clock, lambda: self.config)
        return AppendService(self.replicas, self.turns, hints, clock, verification, self.rights)

    def _read_service(self, hints: LeaderHints) -> ReadService:
        quota = ReplicationQuota(
            self.node_id,
            self.clock,
            on_leader,
            lambda: self.config.leader_replication_throttled_rate,
        )
        planner = ReadPlanner(
            self.replicas,
            self.config.fetch_max_bytes,
            ReplicaSelector(self.metadata, lambda: self.config.replica_selector_class),
            quota,
        )
        return ReadService(self.replicas, self.turns, planner, quota, hints, self.rights)

    def _share_service(self, hints: LeaderHints) -> ShareService:
        config = self.settings
        partitions = SharePartitions(
            self.metadata,
            self.replicas,
            self.logs,
            self.persister,
            self.clock,
            lambda: config.config,
        )
        return ShareService(
            self.metadata, self.replicas, partitions, hints, self.rights, lambda: config.config
        )

    def _consumed_retention(self) -> ConsumedRetention:
        offsets = ConsumedOffsets(
            self.node_id, self.metadata, self.groups, self.persister, self.brokers, self.peers
        )
        return ConsumedRetention(
            self.metadata, self.replicas, offsets, self.topic_config, self.clock
        )

    @property
    def config(self) -> BrokerConfig:
        """The node's settings as they are now, dynamic ones included."""
        return self.settings.config

    def topic_config(self, name: str) -> LogConfig:
        return log_config(self.metadata.topic_config(name), self.settings.config)

    def compacted_topics(self) -> list[str]:
        """The topics whose `cleanup.policy` asks for compaction."""
        if "compact" in self.topic_config("").cleanup_policy:
            candidates = list(self.metadata.topics)
        else:
            # Only topics with settings of their own can differ from the node's default.
            candidates = [
                name
                for kind, name in self.metadata.configs
                if kind == ResourceType.TOPIC and name in self.metadata.topics
            ]
        return [n for n in candidates if "compact" in self.topic_config(n).cleanup_policy]

    # -- what the controller gives this node ---------------------------------------------------

    async def _create_topic(self, topic: CreatableTopic) -> ErrorCode:
        request = CreateTopicsRequest(topics=[topic])
        try:
            response = await self.controller.ask(request)
        except ApiError as e:
            return e.code
        return ErrorCode(response.topics[0].error_code)

    async def _next_producer_ids(self) -> range:
        epoch = self.metadata.brokers[self.node_id].epoch
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=epoch)
        block = await self.controller.ask(request)
        if block.error_code:
            raise ApiError(ErrorCode(block.error_code), "the controller gives no producer ids")
        return range(block.producer_id_start, block.producer_id_start + block.producer_id_len)

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the committed image."""
        self.rights.apply(delta.security)
        self.quotas.apply(delta.security)
        self.telemetry.apply(delta)
        self.topics.pieces.apply(delta)
        if any(kind == ResourceType.BROKER for kind, _ in delta.changed_configs):
            self.take_dynamic_settings()
        self._want_keys(delta.changed_configs)
        for coordinator in (self.groups, self.transactions, self.share_states):
            coordinator.apply(delta)
        self.replicas.apply(delta)
        for coordinator in (self.groups, self.transactions, self.share_states):
            coordinator.lead(delta)
        self.share.apply(delta)
        self.suspicions.apply(delta)

    def take_dynamic_settings(self) -> None:
        image = self.metadata
        refused = self.settings.update(
            image.config(ResourceType.BROKER, ""),
            image.config(ResourceType.BROKER, str(self.node_id)),
        )
        for sentence in refused:
            log.warning("a stored dynamic setting is left out: %s", sentence)
        self.tell_without_effect()
        set_level(self.config.penstock_log_level)
        self.logs.env.producer_id_expiration_ms = self.config.producer_id_expiration_ms
        self.groups.settings_changed(self.config)
        self.share.settings_changed()
        self.on_settings_changed(self.config)
        self.replicas.reconfigure_all()
        key_id = self.config.penstock_encryption_key_id
        self.quorum.log.log.config = metadata_log_config(key_id)
        self._want_keys(self.metadata.configs)

    def _want_keys(self, changed: Iterable[tuple[int, str]]) -> None:
        """Have data keys ready for topics with these settings, before they are written to."""
        keys = self.logs.env.keys
        if keys.provider is None or keys.provider.is_local:
            return
        named = (self.metadata.topic_config(n) for kind, n in changed if kind == ResourceType.TOPIC)
        wanted = {settings.get(KEY_ID, "") for settings in named}
        for key_id in wanted | {self.config.penstock_encryption_key_id}:
            if key_id:
                keys.want(key_id)

    def tell_without_effect(self) -> None:
        """Log each setting of Kafka's that is set and has no effect here, once."""
        names = self.settings.new_without_effect()
        if names:
            log.warning(
                "these settings of Kafka are taken, and have no effect here; docs/settings.md says "
                "why",
                extra={"settings": ",".join(names)},
            )

    def end_waiting(self) -> None:
        """The node stops: parked fetches are answered with what is there, requests that wait for a
        coordinator with an error. What waits for other replicas is given up a little later.
        """
        self.groups.end_waiting()
        self.transactions.end_waiting()
        self.share.end_waiting()
        self.persister.end_waiting()
        self.share_states.end_waiting()
        self.reads.end_waiting()
        self.appends.end_waiting()

    async def stop(self) -> None:
        """Finish what is in flight; the logs are closed by their owner."""
        self.suspicions.stop()
        if self.replication is not None:
            await self.replication.stop()
        await self.appends.stop()
        await self.verifier.stop()
        await self.transactions.stop()
        await self.streams_topics.stop()
        await self.groups.stop()
        self.share.stop()
        await self.persister.stop()
        await self.share_states.stop()
        await self.producer_ids.stop()
        await self.flusher.stop()
        self.reads.stop()
