"""The drivers of the metadata quorum and of the controller.

Duty: carry out what `raft` and `metadata` decide (append, fsync, send, answer), keep the committed
image, and ask the active controller on behalf of this node. Owned by the event loop's thread;
fsyncs run in worker threads.
"""
