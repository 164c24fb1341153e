"""Runs users' pipelines: plain PySpark files, files with a `pipeline` function, and projects of
Spark Declarative Pipelines.

`supervise` is the parent process: it imports no PySpark, starts `child` in a process of its own,
shows what that reports and starts it again when it fails. `state` is what both leave on disk for
`penstock pipeline list|status|stop`.
"""
