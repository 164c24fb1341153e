"""What goes wrong between Spark and a cluster, in words for whoever runs the query.

Every message says what happened, where (option, topic, partition, offset) and what to do. Spark
shows them at the end of a Python traceback.
"""

from __future__ import annotations

from penstock.base.errors import PenstockError


class SparkError(PenstockError):
    """The query cannot go on; nothing was lost, and a restart goes on where it was."""


class OptionError(SparkError, ValueError):
    """An option is missing, unknown, or its value makes no sense."""


class DataLossError(SparkError):
    """Records that the query still had to read are gone."""


class ClusterError(SparkError):
    """The cluster cannot be reached, or refuses."""
