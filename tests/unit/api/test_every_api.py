"""Every API that is served answers a request of nothing but defaults, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.api.handlers import api_names
from penstock.api.registry import APIS, Api
from penstock.base.errors import InvariantBroken
from penstock.wire.apis import ApiKey
from penstock.wire.messages.produce import ProduceRequest
from unit.net.served import run
from unit.serving.rig import running

assert api_names(), "importing the handlers fills the registry"

SERVED = [
    "PRODUCE",
    "FETCH",
    "LIST_OFFSETS",
    "METADATA",
    "FIND_COORDINATOR",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DELETE_RECORDS",
    "INIT_PRODUCER_ID",
    "OFFSET_FOR_LEADER_EPOCH",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "DESCRIBE_LOG_DIRS",
    "CREATE_PARTITIONS",
    "INCREMENTAL_ALTER_CONFIGS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_PRODUCERS",
    "LIST_CONFIG_RESOURCES",
    "DESCRIBE_TOPIC_PARTITIONS",
]


def test_what_is_promised_is_served() -> None:
    assert {ApiKey[name] for name in SERVED} <= set(APIS)
    for key, api in APIS.items():
        assert api.key == key
        assert (api.handle is None) != (api.handle_raw is None)
        assert api.request.VERSIONS == api.response.VERSIONS
        assert set(api.versions) <= set(api.request.VERSIONS)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_defaults_in_every_version(
    tmp_path: Path, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await rig.topic("t", 2)
            peer = await rig.peer()
            for version in api.versions:
                request = api.request()
                if isinstance(request, ProduceRequest):
                    request.acks = 1  # with the default, 0, there is no answer
                answer: Any = await peer.call(request, version)
                assert isinstance(answer, api.response)
            assert not peer.inside.closing

    run(test)
    failures = [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")]
    assert not failures, failures[0].exc_text


def test_an_api_is_registered_once() -> None:
    from penstock.api.registry import _add

    api = APIS[ApiKey.DESCRIBE_CLUSTER]
    with pytest.raises(InvariantBroken, match="twice"):
        _add(api.request, api.response, handle=api.handle)
