"""Coordinators with one mistake each: the simulation is worth something if it finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_PRODUCER_ID
from penstock.coordinator.effects import Effects
from penstock.coordinator.transaction import ending, initialising, shard
from penstock.coordinator.transaction.metadata import TransactionMetadata, from_record


def repeated_end_hits_the_next(patch: pytest.MonkeyPatch) -> None:
    """An EndTxn of the epoch before ends what is open now."""
    decide = ending._decide_version_2

    def wrong(metadata: TransactionMetadata, request: Any) -> Any:
        if request.producer_epoch + 1 == metadata.producer_epoch:
            request.producer_epoch = metadata.producer_epoch
        return decide(metadata, request)

    patch.setattr(ending, "_decide_version_2", wrong)


def anybody_may_end(patch: pytest.MonkeyPatch) -> None:
    """EndTxn of version 1 does not look at the epoch."""
    decide = ending._decide_version_1

    def wrong(metadata: TransactionMetadata, request: Any) -> Any:
        request.producer_epoch = metadata.producer_epoch
        return decide(metadata, request)

    patch.setattr(ending, "_decide_version_1", wrong)


def an_epoch_is_given_again(patch: pytest.MonkeyPatch) -> None:
    """InitProducerId gives the epoch that was there before."""
    next_epoch = initialising._next_epoch

    def wrong(metadata: TransactionMetadata, environment: Any, request: Any, now_ms: int) -> Any:
        code = next_epoch(metadata, environment, request, now_ms)
        if code is ErrorCode.NONE and metadata.producer_epoch > 1:
            metadata.producer_epoch -= 1
        return code

    patch.setattr(initialising, "_next_epoch", wrong)


def markers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not go on with what was decided."""
    patch.setattr(shard.TransactionShard, "loaded", lambda _self, _now_ms: Effects())


def next_id_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The new producer id of a transaction that used up the epochs is lost by a fail-over."""

    def wrong(transactional_id: str, value: Any) -> TransactionMetadata:
        value.next_producer_id = NO_PRODUCER_ID
        return from_record(transactional_id, value)

    patch.setattr(shard, "from_record", wrong)


def marker_before_decision(patch: pytest.MonkeyPatch) -> None:
    """The decision is written when the markers are."""
    prepare = ending._prepare

    def wrong(metadata: Any, environment: Any, effects: Effects, *rest: Any) -> None:
        prepare(metadata, environment, effects, *rest)
        effects.records.clear()

    patch.setattr(ending, "_prepare", wrong)


def late_partition(patch: pytest.MonkeyPatch) -> None:
    """A partition is left out of the markers."""
    send = ending.send_markers

    def wrong(metadata: TransactionMetadata, environment: Any, effects: Effects, now: int) -> None:
        if len(metadata.partitions) > 1:
            metadata.partitions.popitem()
        send(metadata, environment, effects, now)

    patch.setattr(ending, "send_markers", wrong)


MUTANTS: Final[tuple[Callable[[pytest.MonkeyPatch], None], ...]] = (
    repeated_end_hits_the_next,
    anybody_may_end,
    an_epoch_is_given_again,
    markers_are_forgotten,
    next_id_is_forgotten,
    marker_before_decision,
    late_partition,
)
