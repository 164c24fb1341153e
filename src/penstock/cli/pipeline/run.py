"""`penstock pipeline run`: a pipeline in a process of its own, watched and started again."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from penstock.cli.errors import CliError, usage_error
from penstock.cli.options import BOOTSTRAP_DEFAULT
from penstock.cli.output import plural, remark
from penstock.cli.pipeline.options import MASTER_DEFAULT, RunOptions
from penstock.cli.pipeline.view import view_for
from penstock.cli.values import parse_pairs
from penstock.kafka import settings
from penstock.kafka.given import above, gather
from penstock.spark.client_settings import SPELLING, VOCABULARY
from penstock.spark.pipeline.errors import BusyError, PipelineError
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.project import READY_FOLDER, Project, find
from penstock.spark.pipeline.settings import KAFKA, arguments, with_checkpoint
from penstock.spark.pipeline.signature import Signature, signature_of
from penstock.spark.pipeline.state import Folder
from penstock.spark.pipeline.supervise import Supervisor

_VOCABULARY = replace(VOCABULARY, spelling=replace(SPELLING, noun="setting", prefix=""))
"""Where -X, the environment and its file give settings, their names have no prefix."""


def run(
    options: RunOptions,
    target: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE", help="A project folder, a Python file, or a ready pipeline's name."
        ),
    ],
) -> int:
    """Run a pipeline until it is done, or until Ctrl-C or `penstock pipeline stop`."""
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
    job, folder = _job(project, options, settings_of(project, options))
    with folder.held(), view_for(options.output, folder.name) as view:
        return Supervisor(job, folder, view, options.restarts).run()


def check_spark() -> None:
    """Refuses to go on without PySpark, before a process is started for nothing."""
    if importlib.util.find_spec("pyspark") is None:
        raise CliError("pipelines need Spark: install it with pip install 'penstock[spark]'")


def settings_of(project: Project, options: RunOptions) -> dict[str, str]:
    """The command line above the environment and its file, and those above the project's file; the
    brokers are always among them.
    """
    typed = parse_pairs(options.settings, "setting")
    brokers = {} if options.bootstrap is None else {settings.BOOTSTRAP: options.bootstrap}
    kafka = {settings.BOOTSTRAP: BOOTSTRAP_DEFAULT}
    for given in (_kafka_of(project.settings), _given(project, options), _kafka_of(typed), brokers):
        kafka = above(given, kafka)
    others = {
        name: value
        for name, value in (project.settings | typed).items()
        if not name.startswith(KAFKA)
    }
    return others | {f"{KAFKA}{name}": value for name, value in kafka.items()}


def _given(project: Project, options: RunOptions) -> dict[str, str]:
    """What -X, the environment and its file say; the latter two are not meant for a pipeline that
    takes no settings of Kafka's, unless it is given a profile, which is refused then.
    """
    takes_kafka = project.is_declarative or signature_of(project.file).takes_kafka
    environment = os.environ if takes_kafka or options.profile else {}
    return gather(_VOCABULARY, options.xs, options.config_file, environment, options.profile).values


def _kafka_of(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the Kafka client, by Java's names."""
    found = {
        name.removeprefix(KAFKA): value for name, value in given.items() if name.startswith(KAFKA)
    }
    return {settings.ALIASES.get(name, name): value for name, value in found.items()}


def _job(project: Project, options: RunOptions, given: dict[str, str]) -> tuple[Job, Folder]:
    """What the child is told. Everything is checked here that can be without a start of Spark."""
    spark = project.spark | parse_pairs(options.conf, "Spark configuration")
    master = options.master or spark.get("spark.master", MASTER_DEFAULT)
    spark.pop("spark.master", None)
    folder = Folder(options.name or default_name(project, given))
    if not project.is_declarative:
        # Elsewhere than here, no folder of this machine will do for a checkpoint.
        place = str(folder.checkpoint) if master.startswith("local") else None
        given = _checked(signature_of(project.file), given, place, create=options.create)
    elif options.create:
        raise PipelineError("--create is not for declarative pipelines: make the topics yourself")
    job = Job(folder.name, str(project.file), project.is_declarative, given, master, spark)
    return job, folder


def _checked(
    signature: Signature, given: dict[str, str], checkpoints: str | None, *, create: bool
) -> dict[str, str]:
    """The settings, looked at together with the brokers, and with a checkpoint if there is none."""
    # Help and completion of every pipeline import this module, and do not ask brokers.
    from penstock.spark.pipeline.preflight import Preflight

    filled = dict(given)
    if checkpoints is not None:
        filled = with_checkpoint(signature, given, checkpoints, None)
    found = Preflight(signature, arguments(signature, filled), create).run()
    for topic in found.made:
        remark(f"made topic {topic} with {plural(found.partitions[topic], 'partition')}")
    if checkpoints is None:
        return given
    return with_checkpoint(signature, given, checkpoints, found.cluster)


def default_name(project: Project, given: dict[str, str]) -> str:
    """A ready pipeline is named after its topic too: each topic has its own progress."""
    topic = given.get("topic")
    if project.file.parent != READY_FOLDER or topic is None:
        return project.name
    return f"{project.name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', topic)}"
