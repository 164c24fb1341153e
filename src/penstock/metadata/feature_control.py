"""Decisions about features: finalise a newer or, where nothing is lost by it, an older level.

A request is decided as a whole. A level must be supported by this controller, by every registered
broker, fenced ones included, and by every voter of the quorum: each of them may have to read what
is written at the new level. A voter is a broker as well, so one that is not registered is not
known to support anything.

Unlike Kafka, which refuses every downgrade across a change of formats: a safe downgrade is refused
only while the metadata holds something that the older level cannot say, and an unsafe one forgets
it. Eligible leader replicas are given up without losing a partition (`elr_feature.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.elr_feature import disabling, enabling
from penstock.metadata.features import (
    KRAFT_VERSION,
    NOT_SUPPORTED,
    SUPPORTED_FEATURES,
    Levels,
    levels_of,
)
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition_index import PartitionIndex
from penstock.metadata.records import (
    CORDONED_LOG_DIRS_FROM,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    FeatureLevelRecord,
    MetadataRecord,
)
from penstock.metadata.security_records import ROLES_VERSION
from penstock.metadata.topic_rules import TopicRules
from penstock.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(
    image: MetadataImage,
    index: PartitionIndex,
    rules: TopicRules,
    request: UpdateFeaturesRequest,
    voters: Collection[int],
) -> tuple[list[MetadataRecord], UpdateFeaturesResponse]:
    records: list[MetadataRecord] = []
    names = [update.feature for update in request.feature_updates]
    try:
        if len(set(names)) != len(names):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a feature is in the request twice")
        for update in request.feature_updates:
            changes = _updated(image, update, voters)
            if changes and update.feature == ELIGIBLE_LEADER_REPLICAS_VERSION:
                on = update.max_version_level > 0
                records += enabling(image, rules) if on else disabling(image, index)
            records += changes
    except ApiError as e:
        # What has failed is said once, for the request as a whole.
        return [], UpdateFeaturesResponse(error_code=e.code, error_message=e.message)
    results = [UpdatableFeatureResult(feature=name, error_message=None) for name in names]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    return ([] if request.validate_only else records), response


def _updated(
    image: MetadataImage, update: FeatureUpdateKey, voters: Collection[int]
) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    kind = _upgrade_type(update)
    if name == KRAFT_VERSION:
        raise _invalid(name, level, "the quorum is at its only level, 1, from the start")
    if level < 0:
        raise _invalid(name, level, "a level is never less than 0")
    _check_supported(image, name, level, voters)
    current = image.features.get(name, 0)
    if level < current and kind is UpgradeType.UPGRADE:
        raise _invalid(name, level, f"it is less than {current}: ask for a downgrade")
    if level > current and kind is not UpgradeType.UPGRADE:
        raise _invalid(name, level, f"it is more than {current}: ask for an upgrade")
    if level < current and kind is UpgradeType.SAFE_DOWNGRADE:
        _check_safe(image, name, level)
    if level == current:
        return []
    return [FeatureLevelRecord(name=name, feature_level=level)]


def _upgrade_type(update: FeatureUpdateKey) -> UpgradeType:
    if update.allow_downgrade:
        # How version 0 of the request says it.
        return UpgradeType.SAFE_DOWNGRADE
    try:
        return UpgradeType(update.upgrade_type)
    except ValueError:
        raise _invalid(
            update.feature,
            update.max_version_level,
            f"{update.upgrade_type} is not a type of upgrade: use 1, 2 or 3",
        ) from None


def _check_supported(image: MetadataImage, name: str, level: int, voters: Collection[int]) -> None:
    _check_node("this controller", SUPPORTED_FEATURES, name, level)
    for broker in image.brokers.values():
        _check_node(f"broker {broker.id}", levels_of(broker.features), name, level)
    for voter in voters:
        if voter not in image.brokers:
            raise _invalid(
                name, level, f"voter {voter} is not registered, and may not support the feature"
            )


def _check_node(node: str, supported: Mapping[str, Levels], name: str, level: int) -> None:
    levels = supported.get(name, NOT_SUPPORTED)
    if level and level not in levels:
        can = "does not support this feature" if levels == NOT_SUPPORTED else f"supports {levels}"
        raise _invalid(name, level, f"{node} {can}")
    if not level and name in supported and levels.lowest > 0:
        raise _invalid(name, level, f"{node} needs it: it supports {levels}")


def _check_safe(image: MetadataImage, name: str, level: int) -> None:
    if name == ROLES_VERSION and image.security.roles:
        raise _invalid(
            name,
            level,
            f"it would forget the role {min(image.security.roles)!r}: delete the roles first, or "
            "ask for an unsafe downgrade",
        )
    if name != METADATA_VERSION or level >= CORDONED_LOG_DIRS_FROM:
        return
    cordoned = [broker.id for broker in image.brokers.values() if broker.cordoned_log_dirs]
    if cordoned:
        raise _invalid(
            name,
            level,
            f"it would forget that data folders of broker {cordoned[0]} are cordoned: uncordon "
            "them first, or ask for an unsafe downgrade",
        )


def _invalid(name: str, level: int, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be set to level {level}: {why}"
    )
