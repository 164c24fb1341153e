"""Limits that Kafka has no setting for, each with its unit in the name.

A limit that users may want to change is a setting in `config`; these are bounds that only guard
against broken or hostile peers and against our own mistakes.
"""

from __future__ import annotations

DECOMPRESSED_BATCH_BYTES_MAX = 256 * 1024 * 1024
"""A batch that unpacks to more than this is refused as a decompression bomb."""

PRODUCED_BATCH_UNPACKED_BYTES_MAX = 100_000_000
"""A producer's batch may unpack to no more: consumers on librdkafka read no larger one unless they
are told to (`receive.message.max.bytes`).
"""

ARRAY_ELEMENTS_MAX = 1_000_000
"""No request carries an array longer than this, whatever its frame would allow."""

TAGGED_FIELDS_MAX = 1_000
"""No structure carries more unknown tagged fields than this."""
