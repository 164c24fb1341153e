"""How whoever reads a message gives settings: the same setting is `-X sasl.password=...` on the
command line and the option `kafka.sasl.password` of a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Spelling:
    """What stands before the name of a setting in messages."""

    noun: str = "setting"
    prefix: str = ""
    elsewhere: str = "use Kafka's own tools"
    """What to do where this client cannot be used at all."""

    def name(self, setting: str) -> str:
        return self.prefix + setting

    def full(self, setting: str) -> str:
        return f"{self.noun} {self.prefix}{setting}"


PLAIN_SPELLING: Final = Spelling()
