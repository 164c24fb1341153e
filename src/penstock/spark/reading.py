"""How a task reads its range: by the quick way where the connection is plain, else by
confluent-kafka, which knows every `kafka.*` setting of security.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.spark.fetch import CLIENT_ID, Range, Reading, read_range
from penstock.spark.options import SourceOptions

PLAIN = "plaintext"


def read(
    wanted: Range, options: SourceOptions, brokers: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The records of a range as rows of the source; `brokers` are others that may be asked."""
    kafka = options.kafka
    how = Reading(
        bootstrap=",".join([kafka["bootstrap.servers"], *brokers]),
        client_id=kafka.get("client.id", CLIENT_ID),
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
        headers=options.headers,
        poll_timeout_s=options.poll_timeout_s,
        rack=kafka.get("client.rack", ""),
    )
    if kafka.get("security.protocol", PLAIN).lower() == PLAIN:
        return read_range(wanted, how)
    from penstock.spark.consume import consume_range

    return consume_range(wanted, how, kafka)
