"""The data source that Spark finds as `format("penstock")`.

Spark pickles it between its Python processes: it holds the options as they were given, and checks
them when it is asked for something. Rows are those of Spark's own Kafka source. A topic is appended
to, never replaced.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import SparkError
from penstock.spark.options import source_options
from penstock.spark.session import check_pyspark

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp,"
    " timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class PenstockSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        options = source_options(self.options)
        return f"{SCHEMA}, {HEADERS}" if options.headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reader import PenstockReader

        return PenstockReader(source_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.stream_reader import PenstockStreamReader

        return PenstockStreamReader(source_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import check_columns, sink_options
        from penstock.spark.writer import BatchWriter

        if overwrite:
            raise SparkError(
                "mode 'overwrite' is not for topics, which can only be appended to: write with"
                " mode('append'), or delete the topic's records before"
            )
        options = sink_options(self.options)
        check_columns(schema, options)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.sink import check_columns, sink_options
        from penstock.spark.stream_writer import StreamWriter

        options = sink_options(self.options)
        check_columns(schema, options)
        return StreamWriter(options)
