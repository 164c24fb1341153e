"""What a follower does next, by what its log holds and what the leader answered.

A follower asks for what comes after its log's end and names the leader epoch of its last record.
The leader finds from the two whether the logs agree up to there; where they do not, it says where
its own log leaves the follower's (the *diverging* epoch and its end), and the follower cuts its log
back: by leader epoch, never by high watermark.

One `Follower` is one partition under one leader epoch; it gets no answers to requests of an older
one. Invariant: records below the high watermark are truncated only if the leader was elected
uncleanly; `Truncate.loses_committed` is set then, and the driver logs it. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ErrorCode

NO_EPOCH = -1
NO_OFFSET = -1
FIRST_BACKOFF_MS: Final = 10
"""The first pause after an error; each further one is twice as long, up to the setting. When
leadership moves, the follower may learn of it a moment before the leader does.
"""


class FollowerLog(Protocol):
    """What decides: the follower's own log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below, where it ends); (-1, -1) when unknown."""


class Answer(Protocol):
    """What the leader says of the partition."""

    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def diverging_epoch(self) -> int: ...
    @property
    def diverging_end_offset(self) -> int: ...


class Append(NamedTuple):
    """Append the answer's records (if any), then take over the leader's offsets."""

    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Cut the log back to `offset` and ask again."""

    offset: int
    loses_committed: bool


class StartAnew(NamedTuple):
    """Drop everything and begin at `offset`: the leader has nothing older."""

    offset: int


class AskOffsets(NamedTuple):
    """Ask the leader where its log begins and ends, and hand that to `Follower.on_offsets`."""


class BackOff(NamedTuple):
    """Wait before the next request for the partition."""

    pause_ms: int
    code: int


class AwaitMetadata(NamedTuple):
    """The leader is ahead of the metadata here: nothing to do until that has caught up."""


Step: TypeAlias = Append | Truncate | StartAnew | AskOffsets | BackOff | AwaitMetadata


class Follower:
    """One partition that follows a leader, under one leader epoch."""

    __slots__ = ("backoff_max_ms", "errors", "lag", "leader_epoch", "leader_id")

    def __init__(self, leader_id: int, leader_epoch: int, backoff_max_ms: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.backoff_max_ms = backoff_max_ms
        self.errors = 0
        """Errors in a row."""
        self.lag: int | None = None
        """How much the last answer left to fetch below the leader's high watermark."""

    def on_answer(self, answer: Answer, log: FollowerLog, high_watermark: int) -> Step:
        """What to do with the leader's answer about this partition."""
        if answer.error_code == ErrorCode.NONE:
            self.errors = 0
            if answer.diverging_epoch != NO_EPOCH or answer.diverging_end_offset != NO_OFFSET:
                return self._diverged(answer, log, high_watermark)
            return Append(answer.high_watermark, answer.log_start_offset)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return AskOffsets()
        if answer.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            return AwaitMetadata()
        return self.failed(answer.error_code)

    def failed(self, code: int) -> BackOff:
        """The leader cannot serve the partition, or its answer cannot be used."""
        pause_ms = min(FIRST_BACKOFF_MS << min(self.errors, 16), self.backoff_max_ms)
        self.errors += 1
        return BackOff(pause_ms, code)

    def _diverged(self, answer: Answer, log: FollowerLog, high_watermark: int) -> Truncate:
        epoch, end = log.epoch_end_offset(answer.diverging_epoch)
        target = log.log_end_offset
        if end != NO_OFFSET:
            target = min(target, end)
        if end == NO_OFFSET or epoch == answer.diverging_epoch:
            target = min(target, answer.diverging_end_offset)
        # Otherwise the leader's epoch is unknown here: cut off what came after the last one that
        # both may know, and let the leader judge the rest.
        target = max(target, 0)
        return Truncate(target, loses_committed=target < high_watermark)

    def on_offsets(
        self, leader_start: int, leader_end: int, log: FollowerLog, high_watermark: int
    ) -> Step:
        """The leader's log reaches from `leader_start` to `leader_end`, and ours did not fit."""
        if leader_end < log.log_end_offset:
            return Truncate(leader_end, loses_committed=leader_end < high_watermark)
        if leader_start > log.log_end_offset:
            return StartAnew(leader_start)
        # It fits by now, or the leader cannot decide: it has lost its epochs.
        return self.failed(ErrorCode.OFFSET_OUT_OF_RANGE)

    def appended(self, end_offset: int, leader_high_watermark: int) -> None:
        """The log ends at `end_offset` after an answer with that high watermark."""
        self.lag = max(leader_high_watermark - end_offset, 0)

    @property
    def in_sync(self) -> bool:
        return self.lag == 0
