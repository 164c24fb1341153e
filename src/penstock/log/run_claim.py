"""What a run leaves for the next one: the claim that none of its writes are lost.

What was written survives the death of its process, but not that of the machine, unless it was
synced. So a run notes under which broker epoch it wrote and in which boot of the machine. A later
run may claim the data of that epoch if the directory was closed cleanly, or if the machine was not
rebooted since. After a failed fsync no run may: the kernel may have dropped what it could not
write.

Owned by the loop's thread.
"""

from __future__ import annotations

import json
import os

from penstock.log.files import unlink_if_exists, write_atomically

RUN_FILE = "penstock-run.json"
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
NO_EPOCH = -1


def boot_id() -> str:
    """The id of this boot of the machine; empty where the system has none."""
    try:
        with open(BOOT_ID_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""


class RunClaim:
    def __init__(self, data_dir: str, boot: str) -> None:
        self._path = os.path.join(data_dir, RUN_FILE)
        self._boot = boot

    def intact_epoch(self, *, closed_cleanly: bool) -> int:
        """The broker epoch whose data is complete here; `NO_EPOCH` if that is not certain."""
        try:
            with open(self._path) as file:
                stored = json.load(file)
            epoch, boot = int(stored["broker_epoch"]), str(stored["boot_id"])
        except (OSError, ValueError, KeyError, TypeError):
            return NO_EPOCH
        same_boot = bool(boot) and boot == self._boot
        return epoch if closed_cleanly or same_boot else NO_EPOCH

    def begin(self, broker_epoch: int) -> None:
        """Writes belong to this epoch from now on."""
        claim = {"broker_epoch": broker_epoch, "boot_id": self._boot}
        write_atomically(self._path, json.dumps(claim).encode())

    def withdraw(self) -> None:
        """Written data may be lost."""
        unlink_if_exists(self._path)
