"""Penstock on Spark: a source and a sink of PySpark's Python Data Source API.

This room is on the top floor beside the command line. It talks to any Kafka cluster by requests of
its own, with TLS and SASL where they are asked for; it imports nothing of a node.
PySpark, pyarrow and numpy are imported only here: they come with `pip install penstock[spark]`.
"""
