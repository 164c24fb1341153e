"""Runs a project of Spark Declarative Pipelines (`spark-pipeline.yml`), once through its graph.

Spark's runner speaks to a Spark Connect server. Here the server is a plugin of the session that the
child starts anyway, on a port of its own of this machine and with a password by chance, so that
several pipelines run beside each other. Graph, definitions and events are Spark's
(`pyspark.pipelines`); settings become configuration that definitions read with `spark.conf.get`.

Differences from `spark-pipelines run`: a relative `storage` is taken from the project's folder, and
the run ends with an error if a flow has failed for good. What is left of a stopped run goes on with
the next one.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.errors import SparkError
from penstock.spark.pipeline import job as words
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.job import Job
from penstock.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.pipelines.cli import PipelineSpec
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline.child import Reporter, Stopper

CONNECT_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
CLIENT_SETTINGS = {"spark.sql.connect.serverStacktrace.enabled": "false"}
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


class Plan(NamedTuple):
    """What is run: the project's own file, and what the command line and its folder make of it."""

    path: Path
    spec: PipelineSpec
    storage: str
    configuration: dict[str, str]


def run_declarative(job: Job, report: Reporter, stopper: Stopper) -> int:
    """Runs every flow of the project until it has done what there is to do now."""
    plan = _plan(job)
    from penstock.spark.pipeline.child import java_pid
    from penstock.spark.pipeline.pulse import start_pulse
    from penstock.spark.pipeline.queries import Watcher, stop_all

    server = _start_server(job)
    watcher = Watcher(lambda line: report(words.PROGRESS, **line))
    stopper.guard(server, watcher)
    client = _connect(server, plan)
    client.streams.addListener(watcher)
    report(words.STARTED, version=server.version, java_pid=java_pid(server))
    start_pulse(server.sparkContext, lambda line: report(words.WORKING, **line))
    for event in _events(plan, client):
        if stopper.requested.is_set():
            break
        report(words.FLOW, message=event.partition("\n")[0])
        sys.stderr.write(event + "\n")
    if stopper.requested.is_set():
        stop_all(server)  # also what Spark has started since
        report(words.STOPPED)
    return 0


def _plan(job: Job) -> Plan:
    try:
        from pyspark.pipelines.cli import load_pipeline_spec
    except ImportError as e:
        raise SparkError(
            f"declarative pipelines need more of PySpark ({e.name or e}): install it with pip"
            " install 'penstock[spark]'"
        ) from None
    path = Path(job.file)
    try:
        spec = load_pipeline_spec(path)
    except Exception as e:  # YAML's own errors and PySpark's, by many names
        raise PipelineError(f"{path}: {e}") from None
    storage = spec.storage
    if "://" not in storage and not Path(storage).is_absolute():
        storage = (path.parent / storage).as_uri()
    return Plan(path, spec, storage, {**spec.configuration, **job.settings})


def _start_server(job: Job) -> SparkSession:
    """The session of this process, which is also the server that the runner speaks to."""
    from penstock.spark.pipeline.child import spark_settings

    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = str(uuid.uuid4())
    settings = {**_catalog(Path(job.file).parent), **spark_settings(job), **CONNECT_SETTINGS}
    return start_session(job.name, job.master, settings)


def _catalog(folder: Path) -> dict[str, str]:
    """Where tables are, and what is known of them. Spark's own catalog forgets them at the end of a
    run, and the next run then refuses to make them where they are.
    """
    return {
        "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder / 'metastore_db'};create=true"
        ),
        "spark.driver.extraJavaOptions": "-Dderby.stream.error.field=java.lang.System.err",
    }


def _connect(server: SparkSession, plan: Plan) -> Any:
    """A client of the server, which `SparkSession.builder` in the definitions finds as well."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    jvm: Any = server._jvm
    port = getattr(getattr(jvm, _SERVICE), "MODULE$").localPort()
    os.environ |= {"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_LOCAL_REMOTE": "1"}
    # Any other name than localhost would be taken for a server with TLS.
    builder = ConnectSession.builder.remote(f"sc://localhost:{port}")
    for key, value in {**CLIENT_SETTINGS, **plan.configuration}.items():
        builder = builder.config(key, value)
    return builder.create()


def _events(plan: Plan, client: Any) -> Iterator[str]:
    """Builds the graph, starts it, and yields what Spark says of its flows until it is done."""
    from pyspark.pipelines.cli import register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    spec = plan.spec
    graph = create_dataflow_graph(client, spec.catalog, spec.database, plan.configuration)
    registry = SparkConnectGraphElementRegistry(client, graph)
    with redirect_stdout(sys.stderr):  # Spark names each file that it reads
        register_definitions(plan.path, registry, spec, client, graph)
    for result in start_run(client, graph, [], False, [], False, plan.storage):
        if "pipeline_event_result" in result:
            yield result["pipeline_event_result"].event.message
