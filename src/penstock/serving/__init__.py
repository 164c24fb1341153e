"""What any door may ask of a node: publish, read, topics, groups, transactions, the cluster.

Contract: `services.Services` is the whole of it. Calls take plain values and the principal they are
made for, and give plain values: returned, awaited, or through a callback; a refusal is an
`ApiError`. No frame, codec, exchange or connection is passed in, no partition or log is given out.
`broker.Broker` puts the services together and follows the metadata; only `node/` uses it.

Owned by the event loop's thread; cold reads run in worker threads.
"""
