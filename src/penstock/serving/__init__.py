"""What any door may ask of a node: publish, read, topics, groups, transactions, the cluster.

Owned by the event loop's thread; cold reads run beside it.
"""
