"""`penstock pipeline VERB`: one module per verb, and a command for each ready pipeline.

Nothing here imports PySpark: pipelines run in processes of their own. The files of the ready
pipelines are parsed only when one of them, or the help, is asked for.
"""

from __future__ import annotations

import typer


def build() -> typer.Typer:
    """The group of commands about pipelines."""
    from penstock.cli.pipeline import new, run, runs
    from penstock.cli.pipeline.ready import ReadyGroup

    group = typer.Typer(
        help="Make, run and watch pipelines on Spark.",
        cls=ReadyGroup,
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("new")(new.new)
    group.command("run")(run.run)
    group.command("list")(runs.list_runs)
    group.command("status")(runs.status)
    group.command("stop")(runs.stop)
    return group
