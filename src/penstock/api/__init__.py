"""Kafka's protocol, the first of the doors: one file per API key, registered beside its handler.

Contract: a handler takes the decoded request and the node's `Services`, and returns the response or
a promise of it. What belongs to the protocol is done here: codecs, versions, the shape of answers
and of refusals, holding and hanging up. What belongs to the node is asked of `Services`, with the
principal of the request; nothing behind them is imported (import-linter sees to it).

Owned by the event loop's thread.
"""
