"""From a frame to its answer: what is refused, what is let pass, and whom a failure concerns."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.api.registry import APIS
from penstock.base.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.varint import unsigned_varint
from unit.hot_codecs.mutations import mutated, rounds
from unit.net.served import run
from unit.serving.rig import Peer, Rig, produce_request, running, until
from unit.wire.random_messages import random_struct


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(
    key: int, version: int, correlation_id: int = 5, client_id: bytes | None = b"c"
) -> bytes:
    size = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", key, version, correlation_id, size) + (client_id or b"")


def with_peers(tmp_path: Path, test: Callable[[Rig, Peer, Peer], Any], **settings: str) -> None:
    """Runs `test(rig, peer, other)`; afterwards `other` must still be served."""

    async def whole() -> None:
        async with running(tmp_path, **settings) as rig:
            peer, other = await rig.peer(), await rig.peer()
            await test(rig, peer, other)
            assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0

    run(whole)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [-1, 4, 99, 999, 32767])
def test_an_unknown_api_closes_the_connection(tmp_path: Path, key: int) -> None:
    assert key not in APIS

    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        peer.send_raw(framed(header(key, 0)))
        assert await peer.is_closed()
        assert rig.server.refused_total == {"protocol": 1}

    with_peers(tmp_path, test)


@pytest.mark.parametrize("step", [-1, 1])
def test_an_unknown_version_closes_the_connection(tmp_path: Path, step: int) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        wrong = 0
        for key, api in APIS.items():
            if key == ApiKey.API_VERSIONS:
                continue
            version = api.versions[0] - 1 if step < 0 else api.versions[-1] + 1
            fresh = await rig.peer()
            fresh.send_raw(framed(header(key, version) + bytes(20)))
            assert await fresh.is_closed(), api.key.name
            wrong += 1
        assert rig.server.refused_total == {"protocol": wrong}

    with_peers(tmp_path, test)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produces_are_advertised_and_refused(tmp_path: Path, version: int) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        peer.send_raw(framed(header(ApiKey.PRODUCE, version) + struct.pack(">hii", 1, 0, 0)))
        assert await peer.is_closed()

    with_peers(tmp_path, test)


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack(">hhi", 3, 0, 1),
        struct.pack(">hhih", 3, 0, 1, 100),
        struct.pack(">hhih", 18, 0, 1, 100),
        struct.pack(">hhih", 3, 0, 1, 2) + b"\xff\xfe" + bytes(4),
        header(3, 9),
        header(3, 9) + b"\x01\x01\x7f",
        header(3, 9) + b"\xff\xff\xff\xff\xff\xff",
        header(3, 4) + struct.pack(">i", -2),
        header(3, 4) + struct.pack(">i", 2**31 - 1),
        header(0, 3) + b"\x00",
        header(1, 4) + b"\x00",
    ],
    ids=lambda raw: raw.hex()[:40],
)
def test_what_cannot_be_read_closes_the_connection(tmp_path: Path, payload: bytes) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        peer.send_raw(framed(payload))
        assert await peer.is_closed()
        assert rig.server.refused_total == {"protocol": 1}

    with_peers(tmp_path, test)


def test_a_header_has_no_more_tagged_fields_than_it_may_have(tmp_path: Path) -> None:
    """Skipping is work too: a frame full of tags would hold the event loop for seconds."""

    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        many = 100_000
        raw = header(3, 12) + unsigned_varint(many) + b"\x01\x00" * many
        peer.send_raw(framed(raw + MetadataRequest().encode(12)))
        assert await peer.is_closed()

    with_peers(tmp_path, test)


# -- what is let pass ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [-1, 5, 100, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    tmp_path: Path, version: int
) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        peer.send_raw(framed(header(18, version, 77) + b"whatever a later version sends"))
        payload = await peer.receive_payload()
        assert struct.unpack_from(">i", payload) == (77,)
        answer = ApiVersionsResponse.decode(payload[4:], 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        ranges = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        assert ranges[18] == (0, 4)
        # The connection goes on, in the version that was named.
        assert (await peer.call(ApiVersionsRequest(), 0)).error_code == 0

    with_peers(tmp_path, test)


def test_bytes_after_a_request_are_let_pass(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        topic = await rig.topic()
        for request, version in (
            (MetadataRequest(topics=None), 4),
            (MetadataRequest(topics=None), 12),
            (ApiVersionsRequest(), 0),
            (produce_request(topic, None, 8), 8),
            (produce_request(topic, None, 12), 12),
        ):
            raw = peer.frame(request, version)
            peer.send_raw(framed(raw[4:] + b"\x00\x01tail"))
            await peer.receive()
        assert rig.partition(topic).high_watermark == 2

    with_peers(tmp_path, test)


def test_unknown_tags_in_the_header_are_skipped(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        raw = header(60, 1, 9) + b"\x02" + b"\x00\x03abc" + b"\x63\x00"
        peer.send_raw(framed(raw + DescribeClusterRequest().encode(1)))
        payload = await peer.receive_payload()
        assert struct.unpack_from(">i", payload) == (9,)

    with_peers(tmp_path, test)


def test_a_client_without_a_name(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        for client_id in (None, b"", "größer".encode(), b"x" * 30_000):
            peer.send_raw(framed(header(18, 0, 3, client_id)))
            assert struct.unpack_from(">i", await peer.receive_payload()) == (3,)

    with_peers(tmp_path, test)


# -- failures --------------------------------------------------------------------------------------


async def _later(*_: object) -> None:
    raise RuntimeError("something unforeseen, later")


def _now(*_: object) -> None:
    raise RuntimeError("something unforeseen")


@pytest.mark.parametrize("broken", [_now, _later])
def test_a_handler_that_raises_closes_only_its_connection(
    tmp_path: Path,
    broken: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = APIS[ApiKey.DESCRIBE_CLUSTER]
    monkeypatch.setitem(APIS, ApiKey.DESCRIBE_CLUSTER, replace(api, handle=broken))

    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        topic = await rig.topic()
        seen = rig.partition(topic).counters
        peer.send_raw(
            peer.frame(DescribeClusterRequest(), 1) + peer.frame(produce_request(topic, None), 12)
        )
        assert await peer.is_closed()
        await until(lambda: len(rig.server.connections) == 1)
        # What stood behind the failed request is not done either.
        assert seen.produce_requests == 0
        assert rig.partition(topic).log.log_end_offset == 0

    with_peers(tmp_path, test)
    [line] = [r for r in caplog.records if r.name == "penstock.api" and r.levelname == "ERROR"]
    assert line.exc_info is not None


def test_a_metadata_log_that_refuses_is_an_error_code_not_a_closed_connection(
    tmp_path: Path,
) -> None:
    """The world failed: the client is told so in its protocol and can try again."""

    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        rig.broker.quorum.failure = "the metadata log could not be flushed, restart the node"
        answer = await peer.call(InitProducerIdRequest(transactional_id=None), 4)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    with_peers(tmp_path, test)


def test_auto_creation_on_a_metadata_log_that_refuses(tmp_path: Path) -> None:
    from penstock.wire.messages.metadata import MetadataRequestTopic

    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        topic = await rig.topic()
        rig.broker.quorum.failure = "the metadata log could not be flushed, restart the node"
        wanted = [MetadataRequestTopic(name=name) for name in ("new", topic.name)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        answer = await peer.call(request, 12)
        codes = {t.name: t.error_code for t in answer.topics}
        assert codes["t"] == 0
        assert codes["new"] != 0

    with_peers(tmp_path, test, auto_create_topics_enable="true")


# -- ApiVersions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(tmp_path: Path, version: int) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        answer = await peer.call(request, version)
        assert answer.error_code == 0
        ranges = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        assert ranges.pop(0) == (0, 13)
        assert ranges == {
            int(key): (api.versions[0], api.versions[-1])
            for key, api in APIS.items()
            if key != ApiKey.PRODUCE
        }
        assert [k.api_key for k in answer.api_keys] == sorted(k.api_key for k in answer.api_keys)
        if version >= 3:
            features = {f.name: f.max_version_level for f in answer.finalized_features}
            assert features["metadata.version"] > 0
            assert answer.finalized_features_epoch >= 0

    with_peers(tmp_path, test)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä", "x" * 10 + "!"])
def test_a_software_name_that_is_none(tmp_path: Path, name: str) -> None:
    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        for fields in (
            {"client_software_name": name, "client_software_version": "1"},
            {"client_software_name": "x", "client_software_version": name},
        ):
            answer = await peer.call(ApiVersionsRequest(**fields), 3)
            assert answer.error_code == ErrorCode.INVALID_REQUEST

    with_peers(tmp_path, test)


# -- fuzz ------------------------------------------------------------------------------


def test_fuzz_requests_against_a_whole_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever comes, the offender at most is closed, and no handler fails in an unforeseen way."""

    async def test(rig: Rig, peer: Peer, other: Peer) -> None:
        rng = Random(99)
        await rig.topic("t", 2)
        keys = sorted(APIS)
        hostile = await rig.peer()
        for number in rounds():
            api = APIS[keys[number % len(keys)]]
            version = rng.choice(api.versions)
            if hostile.inside.closing:
                hostile = await rig.peer()
            raw = hostile.frame(random_struct(api.request, version, rng), version)[4:]
            hostile.send_raw(framed(mutated(raw, rng)[:2_000] if rng.random() < 0.8 else raw))
            if not number % 50:
                assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0

    with_peers(tmp_path, test)
    failures = [r.exc_text or r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert not failures, failures[0]
