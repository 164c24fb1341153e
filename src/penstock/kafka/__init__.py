"""Kafka's protocol as a client speaks it, for everything that is not a node: `spark`, `cli`, the
benchmarks.

Duty: one blocking connection (`connection.py`) with TLS (`security.py`) and SASL (`sasl.py`); who
leads and who coordinates, with patience (`brokers.py`); and the settings by which a user says all
that, in Java's words or in librdkafka's (`settings.py`; where they are given: `given.py`; what they
come to: `client.py`, and for confluent-kafka `librdkafka.py`).

Invariants: it works with any Kafka cluster; it imports nothing of a node, of Spark, nor a client
library. A password or key is in no `repr` and in no message. What goes wrong is an `OSError`, which
may pass, or a `ClientError` (`errors.py`), which is a sentence for whoever runs the program.

Limits: PLAIN and SCRAM, no Kerberos and no OAuth; certificates and keys as PEM. A connection
belongs to one thread, which blocks.
"""
