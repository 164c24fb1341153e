"""What goes wrong around a pipeline, before or beside Spark, in one sentence each."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class PipelineError(PenstockError):
    """The pipeline cannot be run as it is given: its file, its settings or its folder are wrong.
    Trying again changes nothing.
    """


class BusyError(PipelineError):
    """Another run of the same name is alive."""
