"""A node whose logs are encrypted at rest, by a key in a file, and one whose logs are not."""

from __future__ import annotations

import base64
import os
from typing import ClassVar

from bench.peers.penstock_server import PenstockServer

NOT_ENCRYPTED = "Penstock without encryption at rest"
KEY_ID = "bench"
KEY_BYTES = 32


class Encrypted(PenstockServer):
    """All its topics are encrypted, and its metadata."""

    def settings(self) -> dict[str, str]:
        keys = self.folder / "keys"
        keys.touch(0o600)
        keys.write_text(f"{KEY_ID}:1={base64.b64encode(os.urandom(KEY_BYTES)).decode()}\n")
        return super().settings() | {
            "penstock.encryption.provider": "file",
            "penstock.encryption.file": str(keys),
            "penstock.encryption.key.id": KEY_ID,
        }


class NotEncrypted(PenstockServer):
    """As it is by default."""

    name: ClassVar[str] = NOT_ENCRYPTED
