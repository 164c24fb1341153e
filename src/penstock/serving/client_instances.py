"""The clients that may push metrics: what each is asked for, and when it may come again.

A client asks which metrics are wanted, and is given an id for its instance and one for what it is
asked for (the subscription id); from then on it pushes once an interval. The rules are Kafka's:

* the subscription id is a checksum of metrics and interval mixed with the instance's id, so that
  every node computes the same, and a client may push to any of them;
* who asks or pushes before the interval is over is refused, unless the subscriptions changed, the
  push follows upon asking, or it is the last one (`terminating`);
* after its last push a client is refused; each refusal is told apart by its code.

An instance is forgotten when its connection ends, when it has been silent for three intervals (a
minute at least), or when there are more than INSTANCES_MAX: then the one that was used least
recently. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import ZERO_UUID, Uuid, uuid_text
from penstock.config.client_metrics_config import (
    ALL_METRICS,
    INTERVAL_MS_DEFAULT,
    ClientMetricsConfig,
    Patterns,
)
from penstock.coordinator.java_order import hash_map_order
from penstock.wire.compression import Compression

INSTANCES_MAX: Final = 16_384
"""Kafka's number."""
SILENT_MS_MIN: Final = 60_000
SILENT_INTERVALS: Final = 3
FORGET_EVERY_MS: Final = 60_000
"""To look at all instances takes some milliseconds."""
_RESERVED: Final = (ZERO_UUID, bytes(15) + b"\x01")
_COMPRESSIONS: Final = frozenset(Compression)
_NEVER: Final = -(1 << 62)
_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client asks at once what it may do instead."""


class Client(NamedTuple):
    """What a node knows of the client behind a connection."""

    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int

    def attributes(self, instance_id: Uuid) -> dict[str, str]:
        """What subscriptions match."""
        found = {
            "client_instance_id": uuid_text(instance_id),
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.host,
            "client_source_port": str(self.port),
        }
        return found if self.client_id is None else found | {"client_id": self.client_id}


class Push(NamedTuple):
    """What a client says of the metrics that it pushes."""

    instance_id: Uuid
    subscription_id: int
    terminating: bool
    compression: int
    size: int


class Instance:
    """One client, and what it is asked for."""

    __slots__ = (
        "asked_ms",
        "client",
        "error",
        "expires_ms",
        "id",
        "interval_ms",
        "metrics",
        "pushed_ms",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(self, instance_id: Uuid, client: Client) -> None:
        self.id = instance_id
        self.client = client
        self.version = 0
        self.metrics: list[str] = []
        self.interval_ms = INTERVAL_MS_DEFAULT
        self.subscription_id = 0
        self.asked_ms = self.pushed_ms = _NEVER
        self.expires_ms = 0
        self.terminating = False
        self.error = ErrorCode.NONE

    @property
    def silent_ms_max(self) -> int:
        """For how long it is remembered."""
        return max(SILENT_MS_MIN, SILENT_INTERVALS * self.interval_ms)

    def wants(self, metric: str) -> bool:
        """Whether the client is asked for a metric."""
        return self.metrics == [ALL_METRICS] or metric.startswith(tuple(self.metrics))

    def may_ask(self, now_ms: int) -> bool:
        if now_ms - max(self.asked_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Clients spread their first push over half an interval to one and a half, so the first
        one after asking is always in time.
        """
        if self.asked_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class ClientInstances:
    def __init__(
        self, now_ms: Callable[[], int], new_id: Callable[[], Uuid], bytes_max: int
    ) -> None:
        """`now_ms` never goes back; `bytes_max` is what a push may have."""
        self._now_ms = now_ms
        self._new_id = new_id
        self._bytes_max = bytes_max
        self._instances: dict[Uuid, Instance] = {}  # the one used least recently first
        self._subscriptions: list[tuple[ClientMetricsConfig, Patterns]] = []
        self._version = 1
        self._forget_next_ms = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, subscriptions: Iterable[ClientMetricsConfig]) -> None:
        """These are all subscriptions from now on."""
        self._subscriptions = [(config, Patterns(config.match)) for config in subscriptions]
        self._version += 1

    def ask(self, instance_id: Uuid, client: Client) -> Instance:
        """What the client is to push; one without an id is given one. `ApiError` if it asks too
        early.
        """
        instance = self._instance(
            self._new_id() if instance_id == ZERO_UUID else instance_id, client
        )
        if not instance.may_ask(self._now_ms()) and instance.error not in _ASK_AGAIN:
            raise _too_early()
        instance.error = ErrorCode.NONE
        return instance

    def push(self, push: Push, client: Client) -> Instance:
        """Whose metrics these are; `ApiError` unless they may be taken."""
        if push.instance_id in _RESERVED:
            raise ApiError(ErrorCode.INVALID_REQUEST, "this is no id of a client instance")
        instance = self._instance(push.instance_id, client)
        try:
            self._check(instance, push)
        except ApiError as e:
            instance.error = e.code
            raise
        finally:
            instance.terminating = push.terminating
        instance.error = ErrorCode.NONE
        return instance

    def forget(self, instance_id: Uuid) -> None:
        """The client's connection has ended."""
        self._instances.pop(instance_id, None)

    def _check(self, instance: Instance, push: Push) -> None:
        if instance.terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the client has pushed for the last time")
        if not instance.may_push(self._now_ms()) and not push.terminating:
            raise _too_early()
        if push.subscription_id != instance.subscription_id:
            raise ApiError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscriptions have changed: ask for them"
            )
        if push.compression not in _COMPRESSIONS:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"{push.compression} is not a type of compression",
            )
        if push.size > self._bytes_max:
            raise ApiError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"{push.size} bytes of metrics, at most {self._bytes_max} are allowed "
                "(telemetry.max.bytes)",
            )

    def _instance(self, instance_id: Uuid, client: Client) -> Instance:
        """The instance as the subscriptions are now, used just now."""
        now_ms = self._now_ms()
        if now_ms >= self._forget_next_ms:
            self._forget_silent(now_ms)
        found = self._instances.pop(instance_id, None)
        if found is not None and found.expires_ms <= now_ms:
            found = None
        if found is None:
            found = self._evaluated(Instance(instance_id, client))
        elif found.version < self._version:
            # Its times begin anew: it may ask at once what has changed.
            found = self._evaluated(Instance(instance_id, found.client))
        found.expires_ms = now_ms + found.silent_ms_max
        self._instances[instance_id] = found
        if len(self._instances) > INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        return found

    def _evaluated(self, instance: Instance) -> Instance:
        attributes = instance.client.attributes(instance.id)
        matching = [
            config for config, patterns in self._subscriptions if patterns.match(attributes)
        ]
        metrics = list(dict.fromkeys(name for config in matching for name in config.metrics))
        instance.version = self._version
        instance.metrics = (
            [ALL_METRICS] if ALL_METRICS in metrics else hash_map_order(metrics, len(metrics))
        )
        instance.interval_ms = min(
            [INTERVAL_MS_DEFAULT, *(config.interval_ms for config in matching)]
        )
        instance.subscription_id = _subscription_id(
            instance.metrics, instance.interval_ms, instance.id
        )
        return instance

    def _forget_silent(self, now_ms: int) -> None:
        self._forget_next_ms = now_ms + FORGET_EVERY_MS
        silent = [key for key, one in self._instances.items() if one.expires_ms <= now_ms]
        for key in silent:
            del self._instances[key]


def _subscription_id(metrics: list[str], interval_ms: int, instance_id: Uuid) -> int:
    """A signed checksum over the text that Java makes of the set and the interval."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    mixed = int.from_bytes(instance_id[:8]) ^ int.from_bytes(instance_id[8:])
    unsigned = crc ^ (mixed >> 32) ^ (mixed & 0xFFFF_FFFF)
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def _too_early() -> ApiError:
    return ApiError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over: come again later"
    )
