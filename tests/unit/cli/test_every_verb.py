"""Every command that talks to a cluster takes -X, --config and --profile; the others are listed."""

from __future__ import annotations

from unit.cli.test_help import ALL

LOCAL = {
    "penstock dev": "it starts nodes of its own",
    "penstock plan": "it calculates",
    "penstock profile list": "it shows files",
    "penstock profile show": "it shows files",
    "penstock profile use": "it changes files",
    "penstock profile delete": "it changes files",
    "penstock pipeline new": "it writes files",
    "penstock pipeline list": "it looks for processes of this machine",
    "penstock pipeline status": "it looks at files of this machine",
    "penstock pipeline stop": "it ends a process of this machine",
    "penstock generate dashboard": "it writes a file",
    "penstock generate alerts": "it writes a file",
    "penstock completion": "it writes a script",
    "penstock bench startup": "it starts nodes of its own",
    "penstock bench idle": "it starts a node of its own",
}
"""Those that ask no cluster, and why."""
ELSEWHERE = {
    "penstock serve": "its --config has the settings of a node",
    "penstock cluster recover-quorum": "it works on the files and by the settings of a node",
    "penstock encryption status": "it looks at the files of a node, by its settings",
    "penstock encryption new-key": "it asks the provider that the settings of a node name",
    "penstock encryption rewrap": "it works on the files and by the settings of a node",
    "penstock profile set": "what it is given becomes a profile",
}
WAYS_IN = {"-X", "--config", "--profile"}


def options(path: str) -> set[str]:
    return {option for parameter in ALL[path].params for option in parameter.opts}


VERBS = {path for path, command in ALL.items() if not hasattr(command, "list_commands")}


def test_every_command_has_all_ways_in_or_none() -> None:
    apart = {path: options(path) & WAYS_IN for path in VERBS}
    assert {path for path, ways in apart.items() if ways not in (WAYS_IN, set())} == {*ELSEWHERE}
    assert {path for path, ways in apart.items() if not ways} == {*LOCAL}


def test_no_password_is_an_option_of_its_own() -> None:
    """What is typed is seen by everybody on the machine: files, the environment and a question are
    the ways for secrets.
    """
    named = {option for path in VERBS for option in options(path)}
    assert {option for option in named if option in ("--password", "--secret", "--token")} == set()
