"""`penstock pipeline list|status|stop`: the pipelines of this machine, by their state folders."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.errors import CliError, did_you_mean
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_pairs, print_table
from penstock.cli.pipeline.view import progress_text
from penstock.cli.values import time_text
from penstock.spark.pipeline import state
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.state import Folder, Run, born, folders

POLL_S = 0.1
STOP_S_DEFAULT = 120.0
LIST_COLUMNS = ("name", "status", "process", "since", "restarts", "rows/s", "lag", "master")

PipelineName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the run.")]


def list_runs(output: OutputFormat = Format.TEXT) -> None:
    """Show the pipelines that run on this machine, and how the others ended."""
    found = [(folder, run) for folder in folders() if (run := folder.run()) is not None]
    if output is Format.JSON:
        print_json([_as_json(folder, run) for folder, run in found])
        return
    print_table(LIST_COLUMNS, [_row(folder, run) for folder, run in found])


def status(name: PipelineName, output: OutputFormat = Format.TEXT) -> None:
    """Show one pipeline: its last progress, restarts and last error."""
    folder, run = _find(name)
    if output is Format.JSON:
        print_json(_as_json(folder, run))
        return
    pairs = [
        ("name", run.name),
        ("status", run.status),
        ("process", str(run.pid)),
        ("file", run.target),
        ("master", run.master),
        ("started", time_text(run.started_ms)),
        ("restarts", str(run.restarts)),
    ]
    if run.ended_ms is not None:
        pairs += [("ended", time_text(run.ended_ms)), ("exit code", str(run.exit_code))]
    pairs += [("progress", progress_text(line)) for line in folder.progress().values()]
    if run.last_error:
        pairs.append(("last error", run.last_error))
    print_pairs([*pairs, ("log", str(folder.log_path))])


def stop(
    name: PipelineName,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for its end."),
    ] = STOP_S_DEFAULT,
) -> None:
    """Stop a pipeline cleanly: its running micro-batch is finished first."""
    folder, run = _find(name)
    if not folder.is_held():
        raise CliError(f"pipeline {name} does not run: it {_ended(run)}")
    if born(run.pid) == run.pid_born:
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(run.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while folder.is_held():
        if time.monotonic() > deadline:
            raise CliError(
                f"pipeline {name} (process {run.pid}) was told to stop, but has not ended within"
                f" {timeout:g} s: wait, or kill it; a restart goes on where it was"
            )
        time.sleep(POLL_S)
    _, run = _find(name)
    print(f"pipeline {name} {_ended(run)}")


def _find(name: str) -> tuple[Folder, Run]:
    try:
        folder = Folder(name)
    except PipelineError as e:
        raise CliError(str(e)) from None
    run = folder.run()
    if run is None:
        hint = did_you_mean(name, [f.name for f in folders()])
        raise CliError(
            f"no pipeline {name} has run on this machine{hint}: see `penstock pipeline list`"
        )
    return folder, run


def _ended(run: Run) -> str:
    said = {
        state.DONE: f"is done (exit code {run.exit_code})",
        state.STOPPED: "is stopped",
        state.FAILED: f"has failed: {run.last_error}",
    }
    return said.get(run.status, "has crashed: it ended without a word")


def _as_json(folder: Folder, run: Run) -> dict[str, Any]:
    queries = list(folder.progress().values())
    return {**asdict(run), "queries": queries, "log": str(folder.log_path)}


def _row(folder: Folder, run: Run) -> list[object]:
    lines = list(folder.progress().values()) if folder.is_held() else []
    lags = [line["lag_rows"] for line in lines if line["lag_rows"] is not None]
    return [
        run.name,
        run.status,
        str(run.pid) if folder.is_held() else "-",
        time_text(run.started_ms),
        run.restarts,
        f"{sum(line['rows_per_s'] for line in lines):,.0f}" if lines else "-",
        f"{sum(lags):,}" if lags else "-",
        run.master,
    ]
