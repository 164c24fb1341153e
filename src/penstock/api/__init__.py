"""Kafka's protocol, the first of the doors: one file per API key, with its handler.

Contract: a handler takes the decoded request and the node's `Services`, and returns the response or
a future of it. What belongs to the protocol is done here: codecs, versions, the form of answers and
errors, holding and closing connections. What belongs to the node is called through `Services`, with
the principal of the request; nothing behind them is imported (import-linter holds this).

Owned by the event loop's thread.
"""
