"""Keys for encrypted logs, in memory."""

from __future__ import annotations

from penstock.keys.data_keys import DataKeys
from penstock.keys.local import LocalKeys

KEY_ID = "orders"


class MemoryKeys(LocalKeys):
    """A provider whose keys a test changes."""

    def __init__(self, **keys: dict[int, bytes]) -> None:
        self.keys = keys or {KEY_ID: {1: b"1" * 32}}
        super().__init__("memory", "memory", lambda: self.keys)

    def new_version(self, key_id: str) -> int:
        versions = self.keys.setdefault(key_id, {})
        version = max(versions, default=0) + 1
        versions[version] = bytes([version + 48]) * 32
        return version


def memory_keys(**keys: dict[int, bytes]) -> DataKeys:
    return DataKeys(MemoryKeys(**keys))
