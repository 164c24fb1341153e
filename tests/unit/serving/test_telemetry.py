"""Pushing metrics to a whole node: what it takes, and what it refuses within its bounds."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode as E
from penstock.metadata.config_control import AlterOp
from penstock.metadata.image import ResourceType
from penstock.serving.telemetry import UNPACKED_AT_ONCE_BYTES_MAX
from penstock.wire.apis import ApiKey
from penstock.wire.compression import Compression, compress
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.push_telemetry import PushTelemetryRequest
from support.otlp import Point, gauge, metrics_data, of_bytes
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until

METRICS = metrics_data(gauge("org.x", Point(4.5)), gauge("org.y", Point(1.0)))


async def subscribe(peer: Peer, name: str = "s", **settings: str) -> None:
    given = {"metrics": "org.x", "interval.ms": "100"} | {
        key.replace("_", "."): value for key, value in settings.items()
    }
    changes = [
        AlterableConfig(name=key, config_operation=AlterOp.SET, value=value)
        for key, value in given.items()
    ]
    resource = AlterConfigsResource(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=name, configs=changes
    )
    [answer] = (await peer.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert answer.error_code == 0, answer.error_message


async def asked(peer: Peer) -> Any:
    answer = await peer.call(GetTelemetrySubscriptionsRequest(), 0)
    assert answer.error_code == 0
    return answer


async def push(peer: Peer, metrics: bytes, compression: int = 0) -> int:
    """The code of a first push by a new instance."""
    found = await asked(peer)
    request = PushTelemetryRequest(
        client_instance_id=found.client_instance_id,
        subscription_id=found.subscription_id,
        compression_type=compression,
        metrics=metrics,
    )
    return int((await peer.call(request, 0)).error_code)


def shown(rig: Rig) -> str:
    assert rig.node.metrics is not None
    return rig.node.metrics.registry.render().decode()


def value(rig: Rig, name: str) -> float:
    [line] = [line for line in shown(rig).splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


@pytest.mark.parametrize("kind", Compression)
def test_what_was_asked_for_is_shown(tmp_path: Path, kind: Compression) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            await subscribe(peer)
            found = await asked(peer)
            assert found.requested_metrics == ["org.x"]
            assert found.push_interval_ms == 100
            assert found.telemetry_max_bytes == 1_048_576
            assert found.accepted_compression_types == [4, 3, 1, 2]
            assert found.delta_temporality
            assert await push(peer, compress(kind, METRICS), kind) == 0
            assert 'metric="org.x"} 4.5' in shown(rig)
            assert "org.y" not in shown(rig)  # nobody asked for it
            assert value(rig, "penstock_client_metrics_ignored_total") == 1

    run(test)


def test_without_a_subscription_nothing_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            assert (await asked(peer)).requested_metrics == []
            assert await push(peer, METRICS) == 0
            assert value(rig, "penstock_client_series") == 0

    run(test)


def test_software_and_address_are_matched(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            host, port = peer._writer.get_extra_info("sockname")
            attributes = {
                "client_software_name": "my-client",
                "client_software_version": "1.2",
                "client_source_address": host.replace(".", "\\."),
                "client_source_port": str(port),
                "client_id": "peer",
            }
            for name, pattern in attributes.items():
                await subscribe(peer, name, metrics=name, match=f"{name}={pattern}")
            assert len((await asked(peer)).requested_metrics) == 3  # what it is, is not known yet
            versions = ApiVersionsRequest(
                client_software_name="my-client", client_software_version="1.2"
            )
            await peer.call(versions, 4)
            assert set((await asked(peer)).requested_metrics) == set(attributes)

    run(test)


def test_switched_off_it_is_not_advertised(tmp_path: Path) -> None:
    async def keys(**settings: str) -> set[int]:
        async with running(tmp_path, **settings) as rig:
            peer = await rig.peer()
            versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            told = {key.api_key for key in (await peer.call(versions, 4)).api_keys}
            answer = await peer.call(GetTelemetrySubscriptionsRequest(), 0)
            pushed = await peer.call(PushTelemetryRequest(client_instance_id=b"x" * 16), 0)
            off = E.UNSUPPORTED_VERSION
            assert (answer.error_code == off) == (pushed.error_code == off) == bool(settings)
            return told & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}

    async def test() -> None:
        assert len(await keys()) == 2
        assert await keys(penstock_telemetry_enable="false") == set()

    run(test)


def test_a_bomb_is_refused_within_its_bounds(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            await subscribe(peer)
            large = bytes(2 << 20)
            for kind in (Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY):
                assert await push(peer, compress(kind, large), kind) == E.INVALID_RECORD, kind
            assert await push(peer, large) == E.TELEMETRY_TOO_LARGE
            for broken in (b"\xff", gzip.compress(METRICS)[:-9], zlib.compress(METRICS)):
                assert await push(peer, broken, Compression.GZIP) == E.INVALID_RECORD
            assert await push(peer, b"\xff") == E.INVALID_RECORD
            assert await push(peer, METRICS, 5) == E.UNSUPPORTED_COMPRESSION_TYPE
            assert await push(peer, b"") == 0

    run(test)


def test_what_is_large_is_read_in_another_thread_and_others_are_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peers = [await rig.peer() for _ in range(6)]
            await subscribe(peers[0])
            padding = of_bytes(5, b"x" * 100) * 8_000
            metrics = METRICS + padding
            assert len(metrics) > UNPACKED_AT_ONCE_BYTES_MAX
            packed = compress(Compression.ZSTD, metrics)
            codes = await asyncio.gather(*(push(one, packed, Compression.ZSTD) for one in peers))
            assert codes == [0] * 6
            assert shown(rig).count('metric="org.x"') == 6

    run(test)


def test_an_instance_ends_with_its_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer, other = await rig.peer(), await rig.peer()
            await subscribe(other)
            assert await push(peer, METRICS) == 0
            assert value(rig, "penstock_client_instances") == 1
            peer.close()
            await until(lambda: value(rig, "penstock_client_instances") == 0)
            assert 'metric="org.x"' in shown(rig)  # the last numbers are there to be scraped

    run(test)


def test_subscriptions_are_there_after_a_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await subscribe(await rig.peer())
        async with running(tmp_path) as rig:
            assert (await asked(await rig.peer())).requested_metrics == ["org.x"]

    run(test)
