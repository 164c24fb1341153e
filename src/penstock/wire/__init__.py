"""Kafka's wire format: schema tables, the codecs made from them, record batches, compression.

The room is pure: bytes in, objects out, and back. Importing it imports no table; a module of
`wire.messages` is imported where its API is used.
"""
