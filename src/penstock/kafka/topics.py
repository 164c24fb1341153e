"""Makes topics on any Kafka cluster. Blocking; belongs to the thread of its `Brokers`, whose
`settle_s` is how long it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.kafka.brokers import METADATA_VERSION, Brokers, Patience
from penstock.kafka.client import Address, failed
from penstock.kafka.errors import ClusterError
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

BROKER_DEFAULT: Final = -1
"""As many partitions or replicas as the broker gives a topic by itself."""
CREATE_VERSION: Final = 5


def create_topic(
    brokers: Brokers,
    name: str,
    partitions: int,
    replicas: int = BROKER_DEFAULT,
    config: Mapping[str, str] | None = None,
    *,
    may_exist: bool,
) -> None:
    """Makes a topic; `ClusterError` says why it cannot be made."""
    configs = [CreatableTopicConfig(name=k, value=v) for k, v in (config or {}).items()]
    new = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
    )
    request = CreateTopicsRequest(topics=[new], timeout_ms=int(brokers.settle_s * 1000))
    patience = Patience(brokers.settle_s)
    while True:
        answer = brokers.ask_anyone(request, CreateTopicsResponse, CREATE_VERSION)
        [result] = answer.topics
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE or (may_exist and code is ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        if code is not ErrorCode.NOT_CONTROLLER or not patience.wait():
            why = result.error_message or "no reason given"
            raise ClusterError(
                f"topic {name} cannot be made on {brokers.bootstrap}: {code.name} ({why})"
            )


def wait_for_leaders(brokers: Brokers, address: Address, name: str) -> None:
    """Waits until the broker at `address` knows a leader of each partition."""
    topic = MetadataRequestTopic(name=name)
    request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    patience = Patience(brokers.settle_s)
    while True:
        try:
            answer = brokers.ask(address, request, MetadataResponse, METADATA_VERSION)
        except OSError as e:
            why = failed(address, e)
        else:
            [found] = answer.topics
            codes = [found.error_code, *(p.error_code for p in found.partitions)]
            if found.partitions and not any(codes):
                return
            why = ErrorCode(next((code for code in codes if code), 0)).name
        if not patience.wait():
            raise ClusterError(f"topic {name} has no leaders within {brokers.settle_s:g} s: {why}")
