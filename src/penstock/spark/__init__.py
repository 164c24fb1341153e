"""Penstock on Spark: a source and a sink of PySpark's Python Data Source API.

This room is on the top floor beside the command line. It talks to any Kafka cluster through
confluent-kafka, and where speed counts by requests of its own; it imports nothing of a node.
PySpark, pyarrow and numpy are imported only here: they come with `pip install penstock[spark]`.
"""
