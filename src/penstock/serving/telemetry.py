"""Metrics that clients push to this node (KIP-714): who is asked for which, and what they sent.

What is wanted comes from the metadata: subscriptions are resources with settings. Without one no
client is asked for anything, and none pushes. Nobody needs a right to push, as in Kafka; what a
push may cost is bounded instead:

* `telemetry.max.bytes` packed and unpacked; more than UNPACKED_AT_ONCE_BYTES_MAX are unpacked by a
  worker thread, of PUSHES_AT_ONCE_MAX pushes at a time; what was unpacked is read in turns;
* only metrics that the client was asked for are kept, so that who is asked for none has no series;
* the limits of `wire.otlp`, `client_instances` and `client_metrics`.

Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from penstock.auth.principal import Principal
from penstock.base.clock import Clock, Rng
from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.base.ids import Uuid
from penstock.config.broker_config import BrokerConfig
from penstock.config.client_metrics_config import client_metrics_config
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.net.turn import in_turns
from penstock.observe.metrics import Reading
from penstock.observe.table import (
    CLIENT_INSTANCES,
    CLIENT_METRICS_IGNORED,
    CLIENT_PUSHES,
    CLIENT_SERIES,
    CLIENT_SERIES_DROPPED,
)
from penstock.serving.client_instances import Client, ClientInstances, Instance, Push
from penstock.serving.client_metrics import ClientMetrics
from penstock.wire.compression import Compression, UnpacksTooLarge, unpack
from penstock.wire.otlp import Pushed, read_metrics

UNPACKED_AT_ONCE_BYTES_MAX: Final = 64 * 1024
"""Takes a quarter of a millisecond."""
PUSHES_AT_ONCE_MAX: Final = 4
"""Pushes of which the unpacked bytes are in memory; others wait, packed."""


class TelemetryService:
    def __init__(self, config: BrokerConfig, image: MetadataImage, clock: Clock, rng: Rng) -> None:
        def now_ms() -> int:
            return int(clock.monotonic() * 1000)

        self.active = config.penstock_telemetry_enable
        """Whether clients may push at all."""
        self.bytes_max = config.telemetry_max_bytes
        self._image = image
        self._instances = ClientInstances(now_ms, rng.uuid, self.bytes_max)
        self._metrics = ClientMetrics(now_ms, config.penstock_telemetry_max_series)
        self._room = asyncio.Semaphore(PUSHES_AT_ONCE_MAX)
        self._pushes = 0
        self._ignored = 0

    def load(self) -> None:
        """Take the subscriptions that the metadata has."""
        self._instances.subscribe(
            client_metrics_config(settings)
            for (kind, _), settings in sorted(self._image.configs.items())
            if kind == ResourceType.CLIENT_METRICS
        )

    def apply(self, delta: MetadataDelta) -> None:
        if any(kind == ResourceType.CLIENT_METRICS for kind, _ in delta.changed_configs):
            self.load()

    def ask(self, principal: Principal, client: Client, instance_id: Uuid) -> Instance:
        """What a client is to push, and when."""
        self._require_active()
        return self._instances.ask(instance_id, client)

    async def push(
        self, principal: Principal, client: Client, push: Push, metrics: memoryview
    ) -> None:
        """Take what a client has pushed; `ApiError` if it is refused."""
        self._require_active()
        instance = self._instances.push(push, client)
        self._pushes += 1
        if not metrics:
            return
        async with self._room:
            try:
                pushed = await self._read(Compression(push.compression), metrics)
            except CorruptRecord as e:
                instance.error = ErrorCode.INVALID_RECORD
                raise ApiError(ErrorCode.INVALID_RECORD, str(e)) from e
        wanted = [number for number in pushed.numbers if instance.wants(number.metric)]
        self._ignored += pushed.ignored + len(pushed.numbers) - len(wanted)
        self._metrics.take(instance, wanted)

    def forget(self, instance_id: Uuid) -> None:
        """The connection of this client has ended."""
        self._instances.forget(instance_id)

    def _require_active(self) -> None:
        if not self.active:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "this node takes no metrics of clients (penstock.telemetry.enable)",
            )

    async def _read(self, compression: Compression, metrics: memoryview) -> Pushed:
        at_once = min(UNPACKED_AT_ONCE_BYTES_MAX, self.bytes_max)
        try:
            data = unpack(compression, metrics, max_bytes=at_once)
        except UnpacksTooLarge:
            if at_once == self.bytes_max:
                raise
            data = await asyncio.to_thread(unpack, compression, metrics, max_bytes=self.bytes_max)
        return await in_turns(read_metrics(data))

    def readings(self) -> Iterator[Reading]:
        """For a scrape."""
        yield CLIENT_INSTANCES.one(len(self._instances))
        yield CLIENT_PUSHES.one(self._pushes)
        yield CLIENT_METRICS_IGNORED.one(self._ignored)
        yield CLIENT_SERIES.one(self._metrics.series)
        yield CLIENT_SERIES_DROPPED.one(self._metrics.dropped)
        yield from self._metrics.readings()
