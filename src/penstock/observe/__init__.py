"""What an operator sees of a node: metrics, health over HTTP, the log, the event loop's delay.

The rooms that own the numbers are handed a `Registry` and create their metrics in it; nothing here
knows what a partition or a connection is beyond its numbers.
"""
