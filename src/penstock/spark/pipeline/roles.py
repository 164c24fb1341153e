"""What a setting of a pipeline stands for, so that it can be checked before Spark starts.

A role is written behind the help text: `Annotated[str, "topic to read", Role.SOURCE_TOPIC]`. A
setting without one is handed on as it is. `preflight` says what is checked of each.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    SOURCE_TOPIC = "topics that are read, separated by commas"
    TARGET_TOPIC = "a topic that is written to"
    SOURCE_TABLE = "a table that the pipeline archive has written"
    TARGET_TABLE = "a table that the pipeline archive writes"
    CATALOG = "where tables are named, instead of by a folder"
    SOURCE_FOLDER = "a folder of files that Spark reads"
    TARGET_FOLDER = "a folder of files that Spark writes"
    FORMAT = "a format of keys or values; its schema is the setting *_schema for *_format"
    INFERRED_FORMAT = "the same; the schema of JSON may be left out"
    TIME = "a time, as 2026-11-16T05:00"

    @property
    def is_topic(self) -> bool:
        return self in (Role.SOURCE_TOPIC, Role.TARGET_TOPIC)

    @property
    def is_place(self) -> bool:
        """Whether it is a folder, or an address of one."""
        return self in (
            Role.SOURCE_TABLE,
            Role.TARGET_TABLE,
            Role.SOURCE_FOLDER,
            Role.TARGET_FOLDER,
        )
