"""Whether a member may acknowledge what it says, before anything changes.

All batches of a request stand or fall together, so they are all checked first. What comes out says
for each run of records to which state they change, or that their lock is renewed.

Kafka's codes: INVALID_REQUEST for a request that makes no sense or is about records that nobody was
given, INVALID_RECORD_STATE for records that the member does not hold (any more). Records below the
start are done; to acknowledge them is allowed and has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.base.errors import ApiError, ErrorCode
from penstock.share.locks import Locks
from penstock.share.types import Cause
from penstock.share.values import AckBatch, AckType, ShareLimits
from penstock.share.window import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Window,
    value_runs,
)

_TARGETS: Final = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED)
"""The state that GAP, ACCEPT, RELEASE and REJECT lead to, if nothing else does."""

# An enum's member is slower than a number on the way of every acknowledgement.
RELEASE: Final = int(AckType.RELEASE)
RENEW: Final = int(AckType.RENEW)
_REJECT: Final = int(AckType.REJECT)
_TYPE_MAX: Final = max(AckType)
_NO_CAUSE, _REJECTED, _LIMIT = map(int, (Cause.NONE, Cause.REJECTED, Cause.LIMIT))


class Said(NamedTuple):
    """A run of records of the window, and what is said of them."""

    begin: int
    end: int
    type: int


def outcome(limits: ShareLimits, said: int, count: int) -> tuple[int, int]:
    """The state of a record of which that is said, after so many deliveries, and the cause."""
    if said == _REJECT:
        cause = _REJECTED
    elif said == RELEASE and count >= limits.delivery_count_limit:
        cause = _LIMIT
    else:
        return _TARGETS[said], _NO_CAUSE
    return (ARCHIVING, cause) if limits.dead_letters else (ARCHIVED, _NO_CAUSE)


def checked(
    window: Window,
    locks: Locks,
    limits: ShareLimits,
    member_id: str,
    batches: Sequence[AckBatch],
) -> list[Said]:
    """What is said of which records; raises ApiError if any of it may not be said."""
    _check_form(batches)
    said: list[Said] = []
    before = window.start - 1
    for batch in batches:
        if batch.last_offset < window.start:
            continue
        _check_records(window, locks, member_id, batch, before)
        before = batch.last_offset
        said += _runs(window, batch)
    if not limits.renew_allowed and any(part.type == AckType.RENEW for part in said):
        raise _wrong_state("the group does not allow locks to be renewed")
    return said


def _check_form(batches: Sequence[AckBatch]) -> None:
    before = -1
    for first, last, types in batches:
        if first > last or first < before:
            raise _wrong_request("the ranges of offsets must ascend")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise _wrong_request("one type of acknowledgement for the range, or one per offset")
        if min(types) < 0 or max(types) > _TYPE_MAX:
            raise _wrong_request("there is no such type of acknowledgement")
        before = last


def _check_records(
    window: Window, locks: Locks, member_id: str, batch: AckBatch, before: int
) -> None:
    if len(window) == 0:
        raise _wrong_state("nothing of this partition is held by anybody")
    if batch.last_offset > window.end:
        raise _wrong_request("these offsets lie beyond those that were given to members")
    begin, end = window.clip(batch.first_offset, batch.last_offset)
    if window.start + begin <= before or not window.all_in(ACQUIRED, begin, end):
        raise _wrong_state("a record is not acquired, or is being acknowledged already")
    if not locks.are_of(member_id, window.locks[begin:end]):
        raise _wrong_state("a record is held by another member")


def _runs(window: Window, batch: AckBatch) -> list[Said]:
    begin, end = window.clip(batch.first_offset, batch.last_offset)
    if len(batch.types) == 1:
        return [Said(begin, end, batch.types[0])]
    shift = batch.first_offset + begin - window.offset(begin)
    types = bytes(batch.types)
    return [
        Said(first + shift, stop + shift, said)
        for first, stop, said in value_runs(types, begin - shift, end - shift)
    ]


def _wrong_state(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD_STATE, message)


def _wrong_request(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
