"""One node: everything it is made of, in the order in which it starts and stops.

Start: the data folder is locked and its logs found; the addresses are taken and served, at first to
other nodes only; the node finds its cluster or founds one (`formation`) and takes part in the
metadata quorum; it registers as a broker, catches up with the metadata, opens its replicas and is
unfenced; then clients are served.

Stop: leaderships of partitions (controlled shutdown) and of the quorum are handed over, no new
requests are read, those in flight are answered, fetchers stop, every log is flushed, and the
clean-shutdown marker is written, so that the next start has nothing to check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from penstock.api import handlers
from penstock.api.dispatcher import EVERYTHING, NOTHING, WHILE_STARTING
from penstock.auth.authorizer import Authorizer, parse_super_users
from penstock.base.clock import Clock, Rng, SystemClock, SystemRng
from penstock.base.errors import PenstockError
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition, parse_uuid
from penstock.config.broker_config import HTTP_LISTENER, HTTPS, BrokerConfig
from penstock.config.layers import BrokerSettings
from penstock.config.listeners import SECURITY_PROTOCOLS, address_text
from penstock.config.log_config import LogConfig
from penstock.config.table import ConfigError
from penstock.controlling.lifecycle import BrokerLifecycle, BrokerState
from penstock.controlling.metadata_log import MetadataLog, metadata_log_config
from penstock.controlling.quorum_driver import QuorumDriver
from penstock.keys.providers import data_keys
from penstock.log.checkpoints import read_meta_properties
from penstock.log.environment import LogEnvironment
from penstock.log.files import FileCache
from penstock.log.manager import LogManager
from penstock.log.run_claim import RunClaim, boot_id
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.node.authentication import Authentication
from penstock.node.certificates import Certificates
from penstock.node.compaction import Compaction
from penstock.node.descriptors import shared_out
from penstock.node.doors import Doors
from penstock.node.encryption import prepare_keys
from penstock.node.formation import Formation, Formed
from penstock.node.founding import FoundingUsers
from penstock.node.housekeeping import Housekeeping
from penstock.node.https import HttpsServer
from penstock.node.listening import Listening, listening
from penstock.node.metrics import NodeMetrics
from penstock.node.ways import ways_of
from penstock.observe.health import Health
from penstock.observe.http import HttpServer
from penstock.observe.loop_lag import sample_loop_lag
from penstock.observe.standard import add_build_info
from penstock.peers.peers import Peers
from penstock.raft.types import Endpoint, QuorumConfig, ReplicaKey
from penstock.serving.broker import Broker
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)

log = logging.getLogger("penstock.node")

STOP_GRACE_S = 10.0
BECOME_VOTER_S_MAX = 5.0
POLL_S = 0.02
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class Node:
    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock | None = None,
        rng: Rng | None = None,
        boot: str | None = None,
    ) -> None:
        """`boot` names the boot of the machine; by default as the system does."""
        self._config = config
        self._clock = clock or SystemClock()
        self._rng = rng or SystemRng()
        self._settings = BrokerSettings.of(config)
        self._authorizer = authorizer_of(config)
        self._claim = RunClaim(config.data_dir, boot_id() if boot is None else boot)
        self._files = shared_out()
        self._listening: Listening | None = None
        self._certificates: Certificates | None = None
        self._authentication: Authentication | None = None
        self._http: HttpServer | None = None
        self._logs: LogManager | None = None
        self._peers: Peers | None = None
        self._quorum: QuorumDriver | None = None
        self._broker: Broker | None = None
        self._formation: Formation | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._compaction: Compaction | None = None
        self._housekeeping: Housekeeping | None = None
        self._lag_sampler: asyncio.Task[None] | None = None
        self._doors: Doors | None = None
        self._grace_s = STOP_GRACE_S
        self._state = "starting"
        self.failed: asyncio.Future[str] | None = None
        """Done, with the reason, when the node cannot continue: its runner has to stop it."""
        self.metrics: NodeMetrics | None = None
        self.kafka_address = ""
        self.http_address = ""
        """HOST:PORT, behind https:// where it is encrypted."""

    # -- start ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served."""
        config, clock, rng = self._config, self._clock, self._rng
        self.failed = asyncio.get_running_loop().create_future()
        files = FileCache(self._files.segments, self._files.regions)
        env = LogEnvironment(files, clock=clock, rng=rng)
        env.producer_id_expiration_ms = config.producer_id_expiration_ms
        env.on_fsync_failed = self._claim.withdraw
        env.keys = data_keys(config)
        logs = self._logs = LogManager(config.data_dir, self._topic_config, env)
        stored = read_meta_properties(config.data_dir)
        if stored is not None:
            logs.ensure_meta(config.node_id, config.penstock_cluster_id or stored["cluster.id"])
        metrics = self.metrics = NodeMetrics(
            handlers.api_names(),
            per_topic=config.penstock_metrics_per_topic,
            histograms=config.penstock_metrics_request_histograms,
        )
        certificates = self._certificates = Certificates(config, clock.now_ms)
        for listener in config.listen:
            certificates.load(listener.name)
        certificates.load(config.quorum_listener)
        ways = ways_of(config, certificates)
        peers = self._peers = Peers(f"node-{config.node_id}", ways=ways)
        await prepare_keys(env.keys, logs, config)
        metadata_log = MetadataLog(logs.get_or_create(METADATA_PARTITION, METADATA_TOPIC_ID), clock)
        quorum = self._quorum = QuorumDriver(metadata_log, peers, self._settings, clock, rng)
        broker = self._broker = Broker(
            self._settings,
            quorum,
            peers,
            logs,
            metrics.topics,
            metrics.requests.error,
            clock,
            rng,
            self._authorizer,
        )
        broker.tell_without_effect()
        quorum.metadata.on_failed = self._fail
        doors = self._doors = Doors(broker.services)
        listeners, endpoints = self._take_addresses(broker, doors, metrics, certificates)
        await listeners.start()
        await self._start_http(metrics)
        formed = await self._form(metadata_log, peers, stored)
        meta = logs.ensure_meta(config.node_id, formed.cluster_id)
        broker.cluster.id = formed.cluster_id
        add_build_info(metrics.registry, config.node_id, formed.cluster_id)
        if formed.founder and config.penstock_founding_scram_file:
            users = FoundingUsers(config.penstock_founding_scram_file, rng)
            if metadata_log.is_new:
                users.check()
            quorum.seat.first_records = users.records
        directory_id = parse_uuid(meta["directory.id"])
        quorum.start(
            ReplicaKey(config.node_id, directory_id),
            formed.cluster_id,
            quorum_config(config, formed, ways.quorum),
            endpoints,
        )
        doors.open(WHILE_STARTING)
        await self.unless_failed(self._join(broker, endpoints, directory_id))
        doors.open(EVERYTHING)
        self._begin_duties(broker, metrics)
        log.info(
            "node %d serves",
            config.node_id,
            extra={"kafka": self.kafka_address, "data": logs.data_dir},
        )

    def _take_addresses(
        self,
        broker: Broker,
        doors: Doors,
        metrics: NodeMetrics,
        certificates: Certificates,
    ) -> tuple[Listening, list[Endpoint]]:
        """Bind the listeners; nobody is served yet."""
        config = self._config
        authentication = self._authentication = Authentication(
            config, doors, broker.metadata, self._clock.now_ms
        )
        broker.quorum.metadata.on_committed(authentication.metadata_changed)
        listeners = self._listening = Listening(
            config,
            self._files.connections,
            authentication.handler,
            metrics.requests.answered,
            certificates,
            broker.quotas.connecting,
        )
        if broker.audit is not None:
            listeners.on_certificate = broker.audit.by_certificate
        endpoints = listeners.bind()
        self.kafka_address = listeners.address

        def settings_changed(config: BrokerConfig) -> None:
            authentication.settings_changed(config)
            listeners.settings_changed(config)

        broker.on_settings_changed = settings_changed
        metrics.watch(broker, listeners.servers)
        metrics.watch_doors(certificates, authentication)
        authentication.start()
        return listeners, endpoints

    async def _form(
        self, metadata_log: MetadataLog, peers: Peers, stored: dict[str, str] | None
    ) -> Formed:
        formation = self._formation = Formation(self._config, peers, self._rng)
        cluster_id = None if stored is None else stored["cluster.id"]
        if cluster_id is not None and not metadata_log.is_new:
            return Formed(cluster_id, founder=not formation.others)
        return await formation.form(cluster_id)

    async def _join(self, broker: Broker, endpoints: list[Endpoint], directory_id: bytes) -> None:
        """Register as a broker and begin to serve, once the quorum is joined."""
        config = self._config
        request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=broker.cluster.id,
            incarnation_id=self._rng.uuid(),
            listeners=[
                Listener(
                    name=e.name,
                    host=e.host,
                    port=e.port,
                    security_protocol=SECURITY_PROTOCOLS.index(config.protocol(e.name)),
                )
                for e in endpoints
                if e.name not in config.controller_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=config.broker_rack,
            log_dirs=[directory_id],
            previous_broker_epoch=self._claim.intact_epoch(closed_cleanly=broker.logs.clean_start),
        )
        lifecycle = self._lifecycle = BrokerLifecycle(
            broker.controller,
            self._settings,
            request,
            lambda: [directory_id] if self._settings.config.cordoned_log_dirs else [],
            broker.quorum.is_lost,
        )
        await lifecycle.register()
        self._claim.begin(lifecycle.epoch)
        broker.quorum.metadata.on_committed(lifecycle.metadata_changed)
        broker.rights.load()
        broker.quotas.load()
        broker.take_dynamic_settings()
        clear_strays(broker)
        broker.start_replication()
        broker.groups.start(broker.logs.partitions())
        broker.transactions.start(broker.logs.partitions())
        broker.share_states.start(broker.logs.partitions())
        await self._become_voter(broker.quorum)
        await lifecycle.run()
        while self._is_fenced():
            await asyncio.sleep(POLL_S)  # the controller has it already, this node applies it soon

    async def _become_voter(self, driver: QuorumDriver) -> None:
        """Join the voters and wait for it: ready then means that this node has a vote.

        It is registered by now, so no other node with its id is alive: a voter with that id can
        only be an earlier run of this node.
        """
        if not auto_joins(self._config):
            return
        driver.event(driver.quorum.join)
        deadline = asyncio.get_running_loop().time() + BECOME_VOTER_S_MAX
        while not driver.quorum.is_voter:
            if asyncio.get_running_loop().time() >= deadline:
                log.warning("this node is not a voter of the quorum yet; it continues to ask")
                return
            await asyncio.sleep(POLL_S)

    def _begin_duties(self, broker: Broker, metrics: NodeMetrics) -> None:
        self._compaction = Compaction(broker, metrics.cleaner)
        self._housekeeping = Housekeeping(broker, self._compaction)
        self._housekeeping.start()
        if broker.audit is not None:
            broker.audit.start()
        self._lag_sampler = asyncio.create_task(sample_loop_lag(metrics.loop_lag))
        if self._certificates is not None:
            self._certificates.begin()
        self._state = "serving"

    def _topic_config(self, topic: str) -> LogConfig:
        if topic == METADATA_TOPIC:
            return metadata_log_config(self._settings.config.penstock_encryption_key_id)
        assert self._broker is not None
        return self._broker.topic_config(topic)

    async def _start_http(self, metrics: NodeMetrics) -> None:
        address = self._config.http_listen
        if address is None:
            return
        assert self._certificates is not None
        tls = self._certificates.load(HTTP_LISTENER)
        if tls is None:
            self._http = HttpServer(metrics.registry, self.health)
        else:
            self._http = HttpsServer(metrics.registry, self.health, tls)
        with listening(*address, "--http HOST:PORT"):
            await self._http.start(*address)
        scheme = "" if tls is None else HTTPS
        self.http_address = scheme + address_text(*self._http.address)

    # -- health and stop -----------------------------------------------------------------------

    def health(self) -> Health:
        quorum = self._quorum
        failure = None if quorum is None else quorum.failure or quorum.metadata.failure
        if failure is not None and self._state != "stopping":
            return Health(live=False, ready=False, reason=failure)
        ready = self._state == "serving" and not self._is_fenced()
        return Health(live=True, ready=ready, reason=self._reason())

    def _is_fenced(self) -> bool:
        """The broker is fenced: the controller gets no heartbeats from it, and others lead."""
        assert self._broker is not None
        own = self._broker.metadata.brokers.get(self._config.node_id)
        return own is None or own.fenced

    def _reason(self) -> str:
        if self._state == "serving" and self._is_fenced():
            return "fenced"
        if self._state != "starting":
            return self._state
        if self._lifecycle is not None:
            return self._lifecycle.state.value
        if self._formation is not None and self._formation.waits_for:
            return self._formation.waits_for
        return self._state

    def _fail(self, reason: str) -> None:
        """Stop serving: the answers of this node may be wrong."""
        assert self._doors is not None
        assert self.failed is not None
        self._doors.open(NOTHING)
        if not self.failed.done():
            self.failed.set_result(reason)

    async def unless_failed(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait for `work`; `NodeFailed` if the node fails before it is done."""
        assert self.failed is not None
        task = asyncio.ensure_future(work)
        try:
            both: list[asyncio.Future[Any]] = [task, self.failed]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                raise NodeFailed(self.failed.result())
            await task
        finally:
            task.cancel()

    def hurry(self) -> None:
        """Stop without waiting for the controller or for clients."""
        self._grace_s = 0.0
        if self._lifecycle is not None:
            self._lifecycle.hurry()
        if self._listening is not None:
            self._listening.hurry()

    async def _hand_over(self) -> None:
        lifecycle, broker = self._lifecycle, self._broker
        if lifecycle is None or broker is None or lifecycle.state is not BrokerState.RUNNING:
            return
        if others_serve(broker):
            await lifecycle.shut_down()
            # The controlled shutdown is recorded: another leader takes over while this one still
            # answers.
            await broker.quorum.resign()

    async def stop(self) -> None:
        self._state = "stopping"
        await self._hand_over()
        if self._broker is not None:
            self._broker.end_waiting()
        if self._listening is not None:
            await self._listening.stop(self._grace_s)
        if self._authentication is not None:
            self._authentication.stop()
        if self._lifecycle is not None:
            self._lifecycle.stop()
        if self._lag_sampler is not None:
            self._lag_sampler.cancel()
        if self._certificates is not None:
            self._certificates.stop()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
        if self._compaction is not None:
            await self._compaction.stop()
        if self._broker is not None:
            if self._broker.audit is not None:
                await self._broker.audit.stop(self._grace_s)
            await self._broker.stop()
        if self._quorum is not None:
            await self._quorum.resign()
            self._quorum.stop()
        if self._peers is not None:
            self._peers.close()
        if self._logs is not None:
            self._logs.close()
            self._logs.env.keys.stop()
        if self._http is not None:
            await self._http.stop()
        log.info("stopped")


def others_serve(broker: Broker) -> bool:
    """Whether there is another broker that can take over."""
    brokers = broker.metadata.brokers.values()
    return any(other.id != broker.node_id and not other.fenced for other in brokers)


def auto_joins(config: BrokerConfig) -> bool:
    """Whether the node is to be a voter, and asks for it by itself."""
    listed = config.node_id in [voter.id for voter in config.first_voters]
    return listed or config.controller_quorum_auto_join_enable


def quorum_config(config: BrokerConfig, formed: Formed, listeners: tuple[str, ...]) -> QuorumConfig:
    others = [(v.host, v.port) for v in config.first_voters if v.id != config.node_id]
    return QuorumConfig(
        cluster_id=formed.cluster_id,
        listeners=listeners,
        listed=tuple((v.id, v.host, v.port) for v in config.first_voters),
        bootstrap_servers=(*others, *config.bootstrap_servers),
        founder=formed.founder,
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
    )


def clear_strays(broker: Broker) -> None:
    """Deal with directories that belong to no topic.

    Where a topic's deletion was committed and the process died before the files were removed, they
    are removed now. A directory of a topic that the metadata never had is renamed and kept for a
    person to inspect.
    """
    logs, topics = broker.logs, broker.metadata.topics
    deleted, broker.quorum.metadata.deleted_topics = broker.quorum.metadata.deleted_topics, None
    for tp in logs.partitions():
        topic = topics.get(tp.topic)
        if tp == METADATA_PARTITION or (topic and tp.partition < len(topic.partitions)):
            continue
        if deleted is not None and logs.topic_id_of(tp) in deleted:
            logs.delete(tp)
        else:
            path = logs.set_aside(tp)
            log.warning("no topic claims the log %s: it is kept as %s; remove it by hand", tp, path)


class NodeFailed(PenstockError):
    """The node cannot continue."""


def authorizer_of(config: BrokerConfig) -> Authorizer | None:
    """Who decides what users may do; None if nobody does."""
    try:
        super_users = parse_super_users(config.super_users)
    except ValueError as e:
        raise ConfigError(str(e)) from None
    if not config.authorizer_class_name:
        return None
    return Authorizer(
        super_users, allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found
    )
