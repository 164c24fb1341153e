"""Tab completes commands and options, in each shell that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ASKED = {
    "bash": "source <(penstock completion bash)\n"
    "COMP_WORDS=(penstock {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
    "_penstock_completion penstock; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
    "zsh": "_PENSTOCK_COMPLETE=complete_zsh _TYPER_COMPLETE_ARGS='penstock {words}' penstock",
    "fish": "penstock completion fish | source; complete --do-complete 'penstock {words}'",
}
"""What Tab asks in each shell; zsh completes only where somebody types."""


def shell(name: str, script: str, home: Path) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"this machine has no {name}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [name, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"},
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("name", ASKED)
def test_the_shell_offers_commands_options_and_values(name: str, tmp_path: Path) -> None:
    def offered(words: str) -> str:
        return shell(name, ASKED[name].format(words=words), tmp_path)

    assert "describe" in offered("topic de")
    assert "--format" in offered("group list --fo")
    assert "json" in offered("topic list --format j")


@pytest.mark.parametrize("name", ASKED)
def test_the_script_is_printed_for_any_shell(name: str, tmp_path: Path) -> None:
    script = shell("bash", f"penstock completion {name}", tmp_path)
    assert f"_PENSTOCK_COMPLETE=complete_{name}" in script
    if shutil.which(name):
        (tmp_path / "script").write_text(script)
        shell(name, f"{name} -n {tmp_path / 'script'}", tmp_path)


def test_what_is_installed_is_there_in_a_new_bash(tmp_path: Path) -> None:
    told = shell("bash", "penstock completion bash --install", tmp_path)
    assert told.startswith(f"installed in {tmp_path}")
    loaded = shell("bash", "source ~/.bashrc && complete -p penstock", tmp_path)
    assert "-F _penstock_completion penstock" in loaded


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_the_options_that_look_for_the_shell_take_no_other(option: str, tmp_path: Path) -> None:
    script = f"penstock {option} fish; echo $?"
    assert shell("bash", script, tmp_path) == "2\n"
