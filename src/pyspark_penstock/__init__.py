"""Where Spark looks for data sources without registration: packages named `pyspark_*` with a
`DefaultSource`.
"""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
