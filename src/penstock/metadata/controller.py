"""The controller: every decision that changes cluster metadata, as `(records, response)`.

Contract with the driver that owns it (one thread):

1. Call one decision method. It reads the image and changes nothing. 2. Apply the returned records
to the controller's image at once (`replay`), so that the next decision builds on them although
they are not committed yet. 3. Append the records to the metadata log as one batch, and give the
response when they are committed.
4. When the log does not take them, stop: the image is ahead of what can be promised.

The image that brokers serve from is another one, to which only committed records are applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import BrokerSettings
from penstock.config.log_config import log_config
from penstock.metadata.broker_control import BrokerControl, Registration
from penstock.metadata.config_control import Change, ConfigControl
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import FeatureLevelRecord, MetadataRecord, ProducerIdsRecord
from penstock.metadata.topic_control import (
    DEFAULT,
    CreateTopics,
    create_partitions,
    delete_topics,
)
from penstock.wire.messages import alter_configs as alter
from penstock.wire.messages import incremental_alter_configs as incremental
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

R = TypeVar("R")
Decision: TypeAlias = tuple[list[MetadataRecord], R]

PRODUCER_ID_BLOCK_SIZE: Final = 1000
FEATURES: Final = {"metadata.version": 30}
"""The feature levels of a new cluster; 30 is Kafka's 4.3-IV0, whose record formats we write."""


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


class Controller:
    """The decisions; `image` is the controller's own, ahead of what is committed."""

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, node_id: int, rng: Rng
    ) -> None:
        self.image = image
        self._settings = settings
        self._rng = rng
        self._configs = ConfigControl(image, settings, node_id)
        self._brokers = BrokerControl(image, self._unclean)

    def replay(self, records: Iterable[MetadataRecord]) -> None:
        """Takes decided (or, at start, stored) records into the controller's image."""
        self.image.apply(records, MetadataDelta())

    def bootstrap(self) -> Decision[None]:
        """The first records of a new cluster; none where the log has them already."""
        if self.image.features:
            return [], None
        return [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()
        ], None

    def register_broker(
        self, registration: Registration, epoch: int, *, fenced: bool
    ) -> Decision[int]:
        """Registers a broker's new incarnation; answers its epoch."""
        return self._brokers.register(registration, epoch, fenced=fenced), epoch

    def unregister_broker(self, broker_id: int) -> Decision[None]:
        return self._brokers.unregister(broker_id), None

    def fence_broker(self, broker_id: int) -> Decision[None]:
        return self._brokers.fence(broker_id), None

    def unfence_broker(self, broker_id: int) -> Decision[None]:
        return self._brokers.unfence(broker_id), None

    def begin_broker_shutdown(self, broker_id: int) -> Decision[None]:
        return self._brokers.begin_shutdown(broker_id), None

    def create_topics(self, request: CreateTopicsRequest) -> Decision[CreateTopicsResponse]:
        create = CreateTopics(self.image, self._settings, self._rng)
        response = create.decide(request)
        return ([] if request.validate_only else create.records), response

    def auto_create_topics(self, names: Iterable[str]) -> Decision[CreateTopicsResponse]:
        """Creates topics that a client asked the metadata of, with the broker's defaults."""
        topics = [
            CreatableTopic(name=name, num_partitions=DEFAULT, replication_factor=DEFAULT)
            for name in names
        ]
        return self.create_topics(CreateTopicsRequest(topics=topics))

    def delete_topics(self, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
        return delete_topics(self.image, request)

    def create_partitions(
        self, request: CreatePartitionsRequest
    ) -> Decision[CreatePartitionsResponse]:
        records, response = create_partitions(self.image, request, self._rng)
        return ([] if request.validate_only else records), response

    def alter_configs(
        self, request: alter.AlterConfigsRequest
    ) -> Decision[alter.AlterConfigsResponse]:
        def decide(resource: alter.AlterConfigsResource) -> list[MetadataRecord]:
            values = [(config.name, config.value) for config in resource.configs]
            return self._configs.replace(resource.resource_type, resource.resource_name, values)

        records, outcomes = _each(request.resources, decide)
        responses = [
            alter.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for code, message, kind, name in outcomes
        ]
        response = alter.AlterConfigsResponse(responses=responses)
        return ([] if request.validate_only else records), response

    def incremental_alter_configs(
        self, request: incremental.IncrementalAlterConfigsRequest
    ) -> Decision[incremental.IncrementalAlterConfigsResponse]:
        def decide(resource: incremental.AlterConfigsResource) -> list[MetadataRecord]:
            changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
            return self._configs.change(resource.resource_type, resource.resource_name, changes)

        records, outcomes = _each(request.resources, decide)
        responses = [
            incremental.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for code, message, kind, name in outcomes
        ]
        response = incremental.IncrementalAlterConfigsResponse(responses=responses)
        return ([] if request.validate_only else records), response

    def allocate_producer_ids(self, broker_id: int, epoch: int) -> Decision[ProducerIdBlock]:
        """Hands out a block of producer ids that nobody else will get."""
        first = self.image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
        )
        return [record], ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE)

    def _unclean(self, topic: str) -> bool:
        overrides = self.image.topic_config(topic)
        return log_config(overrides, self._settings.config).unclean_leader_election_enable


class _Outcome(NamedTuple):
    code: int
    message: str | None
    resource_type: int
    resource_name: str


_Resource = TypeVar("_Resource", alter.AlterConfigsResource, incremental.AlterConfigsResource)


def _each(
    resources: list[_Resource], decide: Callable[[_Resource], list[MetadataRecord]]
) -> tuple[list[MetadataRecord], list[_Outcome]]:
    """Decides for each resource by itself; one that is named twice is refused."""
    records: list[MetadataRecord] = []
    outcomes: list[_Outcome] = []
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    times = Counter(keys)
    for key, resource in zip(keys, resources, strict=True):
        try:
            if times[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is in the request twice")
            records += decide(resource)
            outcomes.append(_Outcome(ErrorCode.NONE, None, *key))
        except ApiError as e:
            outcomes.append(_Outcome(e.code, e.message, *key))
    return records, outcomes
