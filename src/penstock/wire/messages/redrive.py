"""Redrive: records that a share group has given up are its work again, ours.

Kafka has no such API (docs/adr/0032).
"""

from __future__ import annotations

from enum import IntEnum

from penstock.wire.apis import ApiKey
from penstock.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
)


class Redriven(IntEnum):
    """What became of records that were named."""

    REVIVED = 0
    GONE = 1
    """Not in the log any more, or perhaps not."""
    UNFINISHED = 2
    """The group's work anyway: there is nothing to revive."""
    NOT_YET = 3
    """Not given up yet: the dead letter is being written, or the group has not come so far."""


class OffsetRange(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")


class RedrivePartition(Struct):
    partition_index: int = int32("0+")
    ranges: list[OffsetRange] = array(OffsetRange, "0+")


class RedriveTopic(Struct):
    name: str = string("0+")
    partitions: list[RedrivePartition] = array(RedrivePartition, "0+")


class RedriveRequest(Message, api_key=ApiKey.REDRIVE, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[RedriveTopic] = array(RedriveTopic, "0+")
    validate_only: bool = boolean("0+")


class RedrivenRange(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    outcome: int = int8("0+")


class RedrivenPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    ranges: list[RedrivenRange] = array(RedrivenRange, "0+")


class RedrivenTopic(Struct):
    name: str = string("0+")
    partitions: list[RedrivenPartition] = array(RedrivenPartition, "0+")


class RedriveResponse(Message, api_key=ApiKey.REDRIVE, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    topics: list[RedrivenTopic] = array(RedrivenTopic, "0+")
