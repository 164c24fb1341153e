"""From where on something is told as a fault, by `penstock doctor` and by the generated alerts."""

from __future__ import annotations

from typing import Final

DISK_FREE_PART_MIN: Final = 0.10
DISK_FREE_PART_CRITICAL: Final = 0.03
"""Of a data folder's file system; below it a burst of messages fills the disk."""
FILES_PART_MAX: Final = 0.8
"""Of the open files that a process may have: logs and connections share them."""
CERTIFICATE_DAYS_MIN: Final = 14
CERTIFICATE_DAYS_CRITICAL: Final = 2
"""Before a certificate ends; a node warns in its log from the first on, too."""
