"""A command for each ready pipeline, with the options that its function's signature says.

The signature is read from the file without running it (`penstock.spark.pipeline.signature`). A
setting whose name is an option of every run (`--name`) can be given with `--set` only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from penstock.cli.errors import CliError, did_you_mean, usage_error
from penstock.cli.lazy import LazyGroup, Verb, command_of
from penstock.cli.options import keyword, shaped
from penstock.cli.pipeline.options import RunOptions
from penstock.cli.pipeline.run import run_project
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.project import Project, ready_pipelines
from penstock.spark.pipeline.settings import CHECKPOINT, as_text
from penstock.spark.pipeline.signature import Kind, Setting, Signature, signature_of

RESERVED = frozenset({*RunOptions.OPTIONS, "set", "format", "config", "command_config", "help"})


class PipelineGroup(LazyGroup):
    """The commands that are written out, and those of the ready pipelines, made when asked for."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "new": Verb(
            "penstock.cli.pipeline.new:new",
            "Make a folder with a small working pipeline.",
        ),
        "run": Verb(
            "penstock.cli.pipeline.run:run",
            "Run a pipeline until it is done, or until Ctrl-C or `penstock pipeline stop`.",
        ),
        "list": Verb(
            "penstock.cli.pipeline.runs:list_runs",
            "Show the pipelines that run on this machine, and how the others ended.",
        ),
        "status": Verb(
            "penstock.cli.pipeline.runs:status",
            "Show one pipeline: its last progress, restarts and last error.",
        ),
        "stop": Verb(
            "penstock.cli.pipeline.runs:stop",
            "Stop a pipeline cleanly: its running micro-batch is finished first.",
        ),
    }

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *ready_pipelines()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        path = ready_pipelines().get(cmd_name.replace("_", "-"))
        if cmd_name in self.commands or path is None:
            return super().get_command(ctx, cmd_name)
        return command_of(cmd_name, ready_command(cmd_name, path))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A misspelt name is compared with those of the ready pipelines too."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.list_commands(ctx))
            raise usage_error(f"no such command {args[0]!r}{hint}; see `penstock pipeline --help`")
        return super().resolve_command(ctx, args)


def ready_command(name: str, path: Path) -> Callable[..., int]:
    """The function behind `penstock pipeline NAME`."""
    try:
        signature = signature_of(path)
    except PipelineError as e:
        raise CliError(str(e)) from None

    def command(**given: Any) -> int:
        own = {key: given[key] for key in RunOptions.OPTIONS}
        own["settings"] = [*(own["settings"] or ()), *_typed(signature, given)]
        return run_project(Project(name, path), RunOptions.of_options(own))

    parameters = [_parameter(s) for s in signature.settings if s.name not in RESERVED]
    parameters += [keyword(key, kind, value) for key, (kind, value) in RunOptions.OPTIONS.items()]
    return shaped(command, parameters, signature.text.partition("\n\n")[0])


def _typed(signature: Signature, given: dict[str, Any]) -> list[str]:
    """The settings that were given as options, as `--set` takes them."""
    found = {s.name: given.get(s.name) for s in signature.settings if s.name not in RESERVED}
    return [f"{name}={as_text(value)}" for name, value in found.items() if value is not None]


def _parameter(setting: Setting) -> inspect.Parameter:
    text = setting.text[:1].upper() + setting.text[1:]
    if setting.name == CHECKPOINT:
        text += "; else in the state folder"
    text = text.rstrip(".") + "."
    if setting.is_required:
        text += "  [required]"
    elif setting.name != CHECKPOINT and setting.default not in (None, "", [], False):
        text += f"  [default: {as_text(setting.default)}]"
    option = f"--{setting.option}"
    if setting.kind is Kind.BOOL:
        names = f"{option}/--no-{setting.option}" if setting.default else option
        return keyword(setting.name, Annotated[bool | None, typer.Option(names, help=text)], None)
    metavar = {Kind.LIST: "A,B,..."}.get(setting.kind, setting.kind.value.upper())
    metavar = "TEXT" if setting.kind is Kind.STR else metavar
    kind = Annotated[str | None, typer.Option(option, metavar=metavar, help=text)]
    return keyword(setting.name, kind, None)
