"""Builds a compiled wheel for each version of CPython, and tries each in a fresh environment.

`make wheels` runs it. A version whose interpreter is not on this machine is named, and the exit
code is then 1; `make wheels VERSIONS=3.11,3.12` asks for those alone. Trying a wheel means: it
installs without a compiler's help, says that it is compiled, and a node of it takes a message and
gives it back.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CONSTRAINTS = ROOT / "constraints.txt"
BUILD_TOOLS = ("build", "hatchling", "mypy", "setuptools")
STOP_S_MAX = 30.0


class Failed(Exception):
    """A step did not succeed; the text is what its command said."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", default=",".join(VERSIONS), help="3.11,3.12,... (all)")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the wheels go")
    options = parser.parse_args()
    failed = False
    for version in options.versions.split(","):
        started = time.monotonic()
        try:
            wheel = _made(version, options.out)
            print(
                f"{wheel.name}: built and tried in {time.monotonic() - started:.0f} s", flush=True
            )
        except Failed as e:
            failed = True
            print(f"Python {version}: {e}", flush=True)
    return int(failed)


def _made(version: str, out: Path) -> Path:
    python = _interpreter(version)
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as folder:
        wheel = _built(python, Path(folder))
        _try(python, wheel, Path(folder))
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, out))


def _interpreter(version: str) -> str:
    """Asked for its version, since a shim of that name may stand for another one, or for none."""
    for found in (f"python{version}", *map(str, _of_pyenv(version))):
        shown = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            run = subprocess.run([found, "-c", shown], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if run.stdout.strip() == version:
            return found
    raise Failed(f"there is no python{version} on this machine")


def _of_pyenv(version: str) -> list[Path]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(root.glob(f"versions/{version}.*/bin/python{version}"))


def _built(python: str, folder: Path) -> Path:
    environment = _environment(python, folder / "build-env")
    _pip(environment, "install", "-c", str(CONSTRAINTS), *BUILD_TOOLS, *_dependencies())
    _run(
        [str(environment / "bin/python"), "-m", "build", "--wheel", "--no-isolation",
         "--outdir", str(folder / "wheels"), str(ROOT)],
        PENSTOCK_COMPILE="1",
    )  # fmt: skip
    (wheel,) = (folder / "wheels").glob("*.whl")
    return wheel


def _dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies: list[str] = project["dependencies"]
    return dependencies


def _try(python: str, wheel: Path, folder: Path) -> None:
    environment = _environment(python, folder / "try-env")
    _pip(environment, "install", "--only-binary=:all:", str(wheel))
    penstock = str(environment / "bin/penstock")
    shown = _run([penstock, "--version"])
    if "(compiled)" not in shown:
        raise Failed(f"the installed package says {shown!r}, not that it is compiled")
    node = subprocess.Popen(
        [penstock, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    try:
        assert node.stdout is not None
        ready = node.stdout.readline()
        if "build=compiled" not in ready:
            raise Failed(f"its node says {ready!r} instead of being ready")
        address = ready.split("kafka=")[1].split()[0]
        _run([penstock, "topic", "produce", "tried", "--create", "-b", address], given="hello\n")
        back = _run([penstock, "topic", "consume", "tried", "-b", address])
        if "hello" not in back:
            raise Failed(f"its node took a message and gave back {back!r}")
    finally:
        node.terminate()
        node.wait(STOP_S_MAX)


def _environment(python: str, folder: Path) -> Path:
    _run([python, "-m", "venv", str(folder)])
    return folder


def _pip(environment: Path, *arguments: str) -> None:
    _run([str(environment / "bin/python"), "-m", "pip", "--disable-pip-version-check", *arguments])


def _run(command: list[str], given: str | None = None, **variables: str) -> str:
    run = subprocess.run(
        command,
        input=given,
        env={**os.environ, **variables, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode:
        raise Failed(f"{' '.join(command)} ended with {run.returncode}:\n{run.stdout[-2000:]}")
    return run.stdout


if __name__ == "__main__":
    sys.exit(main())
