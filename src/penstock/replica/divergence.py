"""Where a reader's log parts from the leader's, by the leader epochs of both.

Two logs that have a record with the same offset and the same leader epoch agree up to there, since
one leader wrote both. A reader names the offset it wants and the epoch of its last record. Pure.
"""

from __future__ import annotations

from typing import Protocol

from penstock.base.errors import ApiError, ErrorCode

UNKNOWN = (-1, -1)


class Epochs(Protocol):
    @property
    def latest_epoch(self) -> int: ...


class LeaderLog(Protocol):
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def epochs(self) -> Epochs: ...
    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]: ...


def end_of_epoch(log: LeaderLog, leader_epoch: int, epoch: int) -> tuple[int, int]:
    """(the largest epoch at or below `epoch`, where it ends); (-1, -1) when unknown."""
    if epoch == leader_epoch:
        return epoch, log.log_end_offset
    latest = log.epochs.latest_epoch
    if 0 <= latest < epoch < leader_epoch:
        # Nothing was written since: the present epoch begins where the log ends.
        return latest, log.log_end_offset
    if log.log_start_offset == log.log_end_offset and 0 <= epoch < leader_epoch:
        # Nothing is kept, of no epoch: all that was written before ended where the log begins.
        return epoch, log.log_end_offset
    return log.epoch_end_offset(epoch)


def divergence(
    log: LeaderLog, leader_epoch: int, fetch_offset: int, last_fetched_epoch: int
) -> tuple[int, int] | None:
    """The last epoch that both logs have, and where it ends here; None where they agree.

    ApiError OFFSET_OUT_OF_RANGE when this log is too short to decide.
    """
    epoch, end = end_of_epoch(log, leader_epoch, last_fetched_epoch)
    if (epoch, end) == UNKNOWN or fetch_offset < log.log_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {fetch_offset} and its epoch {last_fetched_epoch} lie outside of what is kept",
        )
    if epoch < last_fetched_epoch or end < fetch_offset:
        return epoch, end
    return None
