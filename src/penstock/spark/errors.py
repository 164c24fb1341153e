"""What goes wrong between Spark and a cluster, in words for whoever runs the query.

Every message says what happened, where (option, topic, partition, offset) and what to do. Spark
shows them at the end of a Python traceback. What the client itself finds wrong is one of
`penstock.kafka.errors`.
"""

from __future__ import annotations

from penstock.kafka.errors import ClientError, SettingError


class SparkError(ClientError):
    """The query cannot go on; nothing was lost, and a restart goes on where it was."""


class OptionError(SparkError, SettingError):
    """An option is missing, unknown, or its value makes no sense."""


class DataLossError(SparkError):
    """Records that the query still had to read are gone."""
