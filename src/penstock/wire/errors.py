"""The error of this room: bytes or values that Kafka's wire format does not allow."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class WireError(PenstockError):
    """A message cannot be read from the bytes given, or written in the version asked for.

    `field` is the dotted path inside the message, `position` the byte at which reading stopped;
    either is None where it has no meaning.
    """

    def __init__(
        self,
        message: str,
        version: int,
        reason: str,
        *,
        field: str | None = None,
        position: int | None = None,
    ) -> None:
        where = f"{message} v{version}"
        if field:
            where += f", field {field}"
        if position is not None:
            where += f", at byte {position}"
        super().__init__(f"{where}: {reason}")
        self.message = message
        self.version = version
        self.reason = reason
        self.field = field
        self.position = position
