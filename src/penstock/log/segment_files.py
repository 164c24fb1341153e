"""The names of a segment's files, as in Kafka: twenty digits of the base offset and a suffix.

Ours alone are the key file of an encrypted segment, and what was set aside since its key is lost.
"""

from __future__ import annotations

from penstock.log.files import unlink_if_exists

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
KEY_SUFFIX = ".key"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
UNREADABLE_SUFFIX = ".unreadable"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, KEY_SUFFIX)


def segment_path(log_dir: str, base_offset: int, suffix: str) -> str:
    return f"{log_dir}/{base_offset:020d}{suffix}"


def remove_segment_files(log_dir: str, base_offset: int) -> None:
    """Remove what there is of a segment that was never used."""
    for suffix in SEGMENT_SUFFIXES:
        unlink_if_exists(segment_path(log_dir, base_offset, suffix))
