"""What all logs of a data directory share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.base.clock import Clock, Rng, SystemClock, SystemRng
from penstock.keys.data_keys import DataKeys
from penstock.log.changes import LogChanges
from penstock.log.files import FileCache
from penstock.log.index import IndexCache
from penstock.log.offset_checkpoints import OffsetCheckpoints

PRODUCER_ID_EXPIRATION_MS_DEFAULT = 86_400_000


@dataclass(slots=True)
class LogEnvironment:
    """Descriptors, index memory, changed logs, clock, random numbers, and the broker-wide settings
    of logs.
    """

    files: FileCache = field(default_factory=FileCache)
    indexes: IndexCache = field(default_factory=IndexCache)
    changes: LogChanges = field(default_factory=LogChanges)
    clock: Clock = field(default_factory=SystemClock)
    rng: Rng = field(default_factory=SystemRng)
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS_DEFAULT
    keys: DataKeys = field(default_factory=DataKeys)
    """For segments that are encrypted; by default there are none."""
    checkpoints: OffsetCheckpoints | None = None
    """Of the data directory, set by its `LogManager`; a log by itself has none."""
    on_fsync_failed: Callable[[], None] = lambda: None
    """Called when written data may be lost although the process continues."""

    def __post_init__(self) -> None:
        self.files.clock = self.clock
