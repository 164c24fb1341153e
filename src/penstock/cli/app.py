"""Puts the commands together and turns every way in which a command can end into an exit code.

0: done. 1: could not be done. 2: the command line is wrong. 130: interrupted. An error is one
sentence on stderr; a closed pipe (`| head`) ends quietly. A traceback on the terminal is a bug
of Penstock.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import ClassVar

import typer

from penstock import __version__
from penstock.base.build import kind_of_build
from penstock.cli.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    CliError,
    abandon_stdout,
    fail,
    usage_error,
)
from penstock.cli.lazy import LazyGroup, Verb
from penstock.kafka.errors import ClientError, SettingError

_SUGGESTION = re.compile(r"\.? (?:Did you mean |\(Possible options: )([^?)]*)[?)]+")
"""typer's two ways to suggest what was meant, which become one."""


class RootGroup(LazyGroup):
    """Everything that can follow `penstock`."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "serve": Verb(
            "penstock.cli.serve:serve",
            "Run a Penstock node until SIGTERM or Ctrl-C.",
        ),
        "dev": Verb(
            "penstock.cli.dev.dev:dev",
            "Run a local cluster until SIGTERM or Ctrl-C; more nodes than before make it grow.",
        ),
        "topic": Verb(
            "penstock.cli.topic:TopicGroup",
            "Make, change, fill and read topics.",
        ),
        "group": Verb(
            "penstock.cli.group:GroupGroup",
            "See consumer groups, move them in their topics, remove them.",
        ),
        "queue": Verb(
            "penstock.cli.queue:QueueGroup",
            "See share groups as queues, bring back what they gave up, purge them.",
        ),
        "txn": Verb(
            "penstock.cli.txn:TxnGroup",
            "See transactions, find those that hang, end them.",
        ),
        "cluster": Verb(
            "penstock.cli.cluster:ClusterGroup",
            "See the cluster, move its data, change its nodes.",
        ),
        "doctor": Verb(
            "penstock.cli.doctor.doctor:doctor",
            "Say what is wrong with the cluster, the worst first, and what to do; exit code 3 if"
            " anything is.",
        ),
        "plan": Verb(
            "penstock.cli.plan.plan:plan",
            "Say how many nodes, partitions and disks a load needs, in one region or several.",
        ),
        "config": Verb(
            "penstock.cli.config:ConfigGroup",
            "See and change settings of brokers, the cluster, groups and topics.",
        ),
        "acl": Verb(
            "penstock.cli.acl:AclGroup",
            "See, create, delete and check ACLs: who may do what.",
        ),
        "user": Verb(
            "penstock.cli.user:UserGroup",
            "See and make users, and change their passwords.",
        ),
        "role": Verb(
            "penstock.cli.role:RoleGroup",
            "See and make roles, and say who is a member.",
        ),
        "quota": Verb(
            "penstock.cli.quota:QuotaGroup",
            "See and set quotas: how much users, clients and addresses may use.",
        ),
        "token": Verb(
            "penstock.cli.token:TokenGroup",
            "See, make, renew and end delegation tokens.",
        ),
        "encryption": Verb(
            "penstock.cli.encryption:EncryptionGroup",
            "See and rotate the keys of a node's encrypted data.",
        ),
        "profile": Verb(
            "penstock.cli.profile:ProfileGroup",
            "Give the settings by which a cluster is reached a name.",
        ),
        "pipeline": Verb(
            "penstock.cli.pipeline.ready:PipelineGroup",
            "Make, run and watch pipelines on Spark.",
        ),
        "generate": Verb(
            "penstock.cli.generate:GenerateGroup",
            "Make a Grafana dashboard and Prometheus alerts for the metrics of this release.",
        ),
        "completion": Verb(
            "penstock.cli.completion:completion",
            "Print the script by which a shell completes commands and options, or install it.",
        ),
        "bench": Verb(
            "penstock.cli.bench:BenchGroup",
            "Measure a broker: throughput, latency, start, memory, groups.",
        ),
    }


def build_app() -> typer.Typer:
    """The tree of commands; nothing below its root is imported yet."""
    app = typer.Typer(
        name="penstock",
        cls=RootGroup,
        help="Penstock: a message log that speaks Kafka's wire protocol.",
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__} ({kind_of_build()})")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
    ),
) -> None:
    """Penstock: a message log that speaks Kafka's wire protocol."""
    del version


def _refuse_shell(argv: list[str]) -> None:
    """typer's options are for the shell that calls them, whatever shell is named after them."""
    if argv[:1] in (["--show-completion"], ["--install-completion"]) and len(argv) > 1:
        instead = f"penstock completion {argv[1]}"
        if argv[0] == "--install-completion":
            instead += " --install"
        raise usage_error(f"{argv[0]} is for the shell that calls it: use `{instead}`")


def run(argv: list[str]) -> int:
    """Run one command line; never raises."""
    try:
        _refuse_shell(argv)
        result = build_app()(args=argv, prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CliError as e:
        return fail(e.sentence, e.exit_code)
    except SettingError as e:
        return fail(str(e), EXIT_USAGE)
    except ClientError as e:
        return fail(str(e), EXIT_FAILED)
    except typer.TyperException as e:
        return _usage(e)
    except (BrokenPipeError, SystemExit):  # typer leaves by SystemExit when it sees the closed pipe
        abandon_stdout()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except OSError as e:
        return fail(f"{e.strerror or e}" + (f": {e.filename}" if e.filename else ""), 1)


def _usage(error: typer.TyperException) -> int:
    """typer's own refusals, in our form; an empty command line shows the help."""
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(text)
        return EXIT_USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "penstock"
    text = _SUGGESTION.sub(r" (did you mean \1?)", text.replace("Value error, ", "")).rstrip(".")
    sentence = text[:1].lower() + text[1:]
    return fail(f"{sentence}; see `{path} --help`", EXIT_USAGE)
