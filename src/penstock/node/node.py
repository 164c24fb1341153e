"""One node: everything it is made of, in the order in which it starts and stops.

Start: the data folder is locked and its logs found; the metadata log is replayed and this
node elected; the addresses are taken; the node registers itself as a broker under them;
then it serves. Stop: no new requests are read, those in flight are answered, waiting
flushes are done, every log is flushed and closed, and the clean-shutdown marker is written,
so that the next start has nothing to check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.api import handlers
from penstock.api.dispatcher import Dispatcher
from penstock.base.clock import SystemClock, SystemRng
from penstock.base.errors import PenstockError
from penstock.base.ids import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    TopicPartition,
    parse_uuid,
    uuid_text,
)
from penstock.broker.broker import Broker
from penstock.broker.controller_driver import METADATA_LOG_CONFIG, ControllerDriver
from penstock.config.broker_config import BrokerConfig
from penstock.config.layers import BrokerSettings
from penstock.config.listeners import address_text
from penstock.config.log_config import LogConfig
from penstock.log.checkpoints import read_meta_properties
from penstock.log.environment import LogEnvironment
from penstock.log.manager import LogManager
from penstock.metadata.broker_control import Registration
from penstock.metadata.records import BrokerEndpoint
from penstock.net.server import NetLimits, Server
from penstock.node.compaction import Compaction
from penstock.node.housekeeping import Housekeeping
from penstock.node.metrics import NodeMetrics
from penstock.observe.health import Health
from penstock.observe.http import HttpServer
from penstock.observe.loop_lag import sample_loop_lag

log = logging.getLogger("penstock.node")

STOP_GRACE_S = 10.0
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)


class Node:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._servers: list[Server] = []
        self._http: HttpServer | None = None
        self._logs: LogManager | None = None
        self._controller: ControllerDriver | None = None
        self._broker: Broker | None = None
        self._compaction: Compaction | None = None
        self._housekeeping: Housekeeping | None = None
        self._lag_sampler: asyncio.Task[None] | None = None
        self._grace_s = STOP_GRACE_S
        self._state = "starting"
        self.metrics: NodeMetrics | None = None
        self.kafka_address = ""
        self.http_address = ""

    # -- start ---------------------------------------------------------------------------------

    async def start(self) -> None:
        config = self._config
        settings = BrokerSettings.of(config)
        clock, rng = SystemClock(), SystemRng()
        env = LogEnvironment(clock=clock, rng=rng)
        env.producer_id_expiration_ms = config.producer_id_expiration_ms
        logs = self._logs = LogManager(config.data_dir, self._topic_config, env)
        stored = read_meta_properties(config.data_dir) or {}
        cluster_id = config.penstock_cluster_id or stored.get("cluster.id") or uuid_text(rng.uuid())
        meta = logs.ensure_meta(config.node_id, cluster_id)
        metadata_log = logs.get_or_create(METADATA_PARTITION, METADATA_TOPIC_ID)
        controller = ControllerDriver(metadata_log, settings, config.node_id, clock, rng)
        self._controller = controller
        controller.start()
        metrics = self.metrics = NodeMetrics(
            handlers.api_names(), per_topic=config.penstock_metrics_per_topic
        )
        broker = Broker(
            settings,
            controller,
            logs,
            metrics.topics,
            metrics.requests.error,
            clock,
            rng,
            meta["cluster.id"],
        )
        self._broker = broker
        dispatcher = Dispatcher(broker)
        endpoints = self._bind(dispatcher, metrics)
        await self._register(controller, endpoints, parse_uuid(meta["directory.id"]), rng.uuid())
        broker.take_dynamic_settings()
        clear_strays(logs, controller)
        broker.groups.start(logs.partitions())
        metrics.watch(broker, self._servers)
        for server in self._servers:
            await server.start()
        await self._start_http(metrics)
        self._compaction = Compaction(broker, metrics.cleaner)
        self._housekeeping = Housekeeping(broker, self._compaction)
        self._housekeeping.start()
        self._lag_sampler = asyncio.create_task(sample_loop_lag(metrics.loop_lag))
        self._state = "serving"
        log.info(
            "node %d serves",
            config.node_id,
            extra={"kafka": self.kafka_address, "data": logs.data_dir},
        )

    def _topic_config(self, topic: str) -> LogConfig:
        if topic == METADATA_TOPIC:
            return METADATA_LOG_CONFIG
        assert self._broker is not None
        return self._broker.topic_config(topic)

    def _bind(self, dispatcher: Dispatcher, metrics: NodeMetrics) -> list[BrokerEndpoint]:
        """Take every listener's address; what clients are told follows from what was taken."""
        limits = net_limits(self._config)
        advertised = {listener.name: listener for listener in self._config.advertised}
        endpoints = []
        for listener in self._config.listen:
            server = Server(listener.name, limits, dispatcher, metrics.requests.answered)
            self._servers.append(server)
            with _listening(listener.host, listener.port, "--listen HOST:PORT"):
                host, port = server.bind(listener.host or "0.0.0.0", listener.port)
            if not self.kafka_address:
                self.kafka_address = address_text(listener.host or host, port)
            told = advertised.get(listener.name, listener)
            endpoints.append(
                BrokerEndpoint(name=listener.name, host=told.host or host, port=told.port or port)
            )
        return endpoints

    async def _register(
        self,
        controller: ControllerDriver,
        endpoints: list[BrokerEndpoint],
        directory_id: bytes,
        incarnation_id: bytes,
    ) -> None:
        await controller.submit(lambda c: c.bootstrap())
        registration = Registration(
            self._config.node_id,
            incarnation_id,
            endpoints,
            rack=self._config.broker_rack,
            log_dirs=[directory_id],
        )
        epoch = controller.next_offset
        await controller.submit(lambda c: c.register_broker(registration, epoch, fenced=False))

    async def _start_http(self, metrics: NodeMetrics) -> None:
        address = self._config.http_listen
        if address is None:
            return
        self._http = HttpServer(metrics.registry, self.health)
        with _listening(*address, "--http HOST:PORT"):
            await self._http.start(*address)
        self.http_address = address_text(*self._http.address)

    # -- health and stop -----------------------------------------------------------------------

    def health(self) -> Health:
        controller = self._controller
        if controller is not None and controller.failure is not None:
            return Health(live=False, ready=False, reason=controller.failure)
        return Health(live=True, ready=self._state == "serving", reason=self._state)

    def hurry(self) -> None:
        """Stop without waiting for clients."""
        self._grace_s = 0.0
        for server in self._servers:
            server.hurry()

    async def stop(self) -> None:
        self._state = "stopping"
        if self._broker is not None:
            self._broker.end_waiting()
        await asyncio.gather(*(server.stop(self._grace_s) for server in self._servers))
        if self._lag_sampler is not None:
            self._lag_sampler.cancel()
        if self._housekeeping is not None:
            await self._housekeeping.stop()
        if self._compaction is not None:
            await self._compaction.stop()
        if self._broker is not None:
            await self._broker.stop()
        if self._controller is not None:
            self._controller.stop()
        if self._logs is not None:
            self._logs.close()
        if self._http is not None:
            await self._http.stop()
        log.info("stopped")


def clear_strays(logs: LogManager, controller: ControllerDriver) -> None:
    """Deal with directories that no topic claims.

    Where a topic's deletion was committed and the process died before its files were gone, they
    go now. What the metadata never heard of is set aside for a person to look at.
    """
    topics = controller.committed.topics
    for tp in logs.partitions():
        topic = topics.get(tp.topic)
        if tp == METADATA_PARTITION or (topic and tp.partition < len(topic.partitions)):
            continue
        if logs.topic_id_of(tp) in controller.deleted_topics:
            logs.delete(tp)
        else:
            path = logs.set_aside(tp)
            log.warning("no topic claims the log %s: it is kept as %s; remove it by hand", tp, path)


class CannotListen(PenstockError):
    """An address that the node was told to listen on cannot be had."""


@contextmanager
def _listening(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise CannotListen(
            f"cannot listen on {address_text(host, port)} ({e.strerror or e}): stop what holds the "
            f"address, or choose another with {option}"
        ) from e


def net_limits(config: BrokerConfig) -> NetLimits:
    return NetLimits(
        request_bytes_max=config.socket_request_max_bytes,
        queued_request_bytes_max=config.queued_max_request_bytes,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        idle_ms_max=config.connections_max_idle_ms,
        listen_backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )
