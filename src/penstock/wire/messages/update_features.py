"""UpdateFeatures: set the cluster's finalized feature levels."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    timeout_ms: int = int32("0+", default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class UpdateFeaturesResponse(
    Message, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
