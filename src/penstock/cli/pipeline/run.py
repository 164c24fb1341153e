"""`penstock pipeline run`: a pipeline in a process of its own, watched and started again."""

from __future__ import annotations

import importlib.util
import re
from typing import Annotated

import typer

from penstock.cli.errors import CliError, usage_error
from penstock.cli.options import BOOTSTRAP_DEFAULT, Format, OutputFormat
from penstock.cli.pipeline.options import (
    MASTER_DEFAULT,
    Bootstrap,
    Conf,
    Master,
    Name,
    Restarts,
    RunOptions,
    Settings,
)
from penstock.cli.pipeline.view import view_for
from penstock.cli.values import parse_pairs
from penstock.spark.pipeline.errors import BusyError, PipelineError
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.project import READY_FOLDER, Project, find
from penstock.spark.pipeline.settings import BOOTSTRAP, arguments, with_checkpoint
from penstock.spark.pipeline.signature import signature_of
from penstock.spark.pipeline.state import Folder
from penstock.spark.pipeline.supervise import Supervisor


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE", help="A project folder, a Python file, or a ready pipeline's name."
        ),
    ],
    master: Master = None,
    settings: Settings = None,
    conf: Conf = None,
    name: Name = None,
    restarts: Restarts = None,
    bootstrap: Bootstrap = None,
    output: OutputFormat = Format.TEXT,
) -> int:
    """Run a pipeline until it is done, or until Ctrl-C or `penstock pipeline stop`."""
    options = RunOptions(bootstrap, master, settings or (), conf or (), name, restarts, output)
    try:
        project = find(target)
    except PipelineError as e:
        raise usage_error(str(e)) from None
    return run_project(project, options)


def run_project(project: Project, options: RunOptions) -> int:
    """Runs a pipeline that was found; the exit code."""
    check_spark()
    try:
        return _supervise(project, options)
    except BusyError as e:
        raise CliError(str(e)) from None
    except PipelineError as e:
        raise usage_error(str(e)) from None


def _supervise(project: Project, options: RunOptions) -> int:
    settings = _settings(project, options)
    job, folder = _job(project, options, settings)
    with folder.held(), view_for(options.output, folder.name) as view:
        return Supervisor(job, folder, view, options.restarts).run()


def check_spark() -> None:
    """Refuses to go on without PySpark, before a process is started for nothing."""
    if importlib.util.find_spec("pyspark") is None:
        raise CliError("pipelines need Spark: install it with pip install 'penstock[spark]'")


def _settings(project: Project, options: RunOptions) -> dict[str, str]:
    """The command line above the project's file; the brokers are always among them."""
    given = project.settings | parse_pairs(options.settings, "setting")
    if options.bootstrap is not None:
        given[BOOTSTRAP] = options.bootstrap
    return {BOOTSTRAP: BOOTSTRAP_DEFAULT, **given}


def _job(project: Project, options: RunOptions, settings: dict[str, str]) -> tuple[Job, Folder]:
    """What the child is told. Settings are checked here, where it costs no start of Spark."""
    spark = project.spark | parse_pairs(options.conf, "Spark configuration")
    master = options.master or spark.get("spark.master", MASTER_DEFAULT)
    spark.pop("spark.master", None)
    folder = Folder(options.name or default_name(project, settings))
    if not project.is_declarative:
        signature = signature_of(project.file)
        if master.startswith("local"):  # else no folder of this machine will do
            settings = with_checkpoint(signature, settings, str(folder.checkpoint))
        arguments(signature, settings)
    job = Job(folder.name, str(project.file), project.is_declarative, settings, master, spark)
    return job, folder


def default_name(project: Project, settings: dict[str, str]) -> str:
    """A ready pipeline is named after its topic too: each topic has its own progress."""
    topic = settings.get("topic")
    if project.file.parent != READY_FOLDER or topic is None:
        return project.name
    return f"{project.name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', topic)}"
