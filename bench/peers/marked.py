"""Messages whose end is found without parsing, for protocols in text.

NATS and Redis write a line end behind each payload. Payloads here end with a mark that is nowhere
else in what the servers send, so whole messages are counted by one search for the mark with its
line end, at the speed of memory, whatever lies between them.
"""

from __future__ import annotations

MARK = b"<end of message>"
END = MARK + b"\r\n"
FILL = b"x"
"""Not part of the mark: the search leaps over it."""


def payload(size: int) -> bytes:
    """A message of `size` bytes."""
    if size < len(MARK):
        raise ValueError(f"a message needs {len(MARK)} bytes for its mark, not {size}")
    return MARK.rjust(size, FILL)
