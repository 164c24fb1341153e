"""Fetches Apache Kafka's jars with Maven into `build/kafka-libs`, for the tests that need Java.

Run `python tools/fetch_java.py`. It says what it does. When Java or Maven is missing and this is a
Debian-like machine on which we are root, it installs them; otherwise it says why the Java tests
will be skipped. A machine without Java is no failure of the build, so the exit code is 0 either
way; `--strict` makes it 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POM = ROOT / "tests" / "interop" / "java" / "pom.xml"
LIBS = ROOT / "build" / "kafka-libs"
PACKAGES = {"java": "default-jdk-headless", "javac": "default-jdk-headless", "mvn": "maven"}
INSTALL_SECONDS_MAX = 600
FETCH_SECONDS_MAX = 600
ERROR_LINES_SHOWN = 5


def say(text: str) -> None:
    """One line of progress, at once."""
    sys.stdout.write(f"fetch_java: {text}\n")
    sys.stdout.flush()


def run(argv: list[str], seconds: int) -> str | None:
    """Runs a command quietly; the end of its output when it fails, None when it works."""
    say("running " + " ".join(argv))
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            env=environment,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {seconds} s"
    if done.returncode == 0:
        return None
    return " | ".join(done.stdout.strip().splitlines()[-ERROR_LINES_SHOWN:])


def install_tools() -> str | None:
    """Installs what is missing of Java and Maven; the reason when that cannot be done."""
    missing = [tool for tool in PACKAGES if shutil.which(tool) is None]
    if not missing:
        return None
    names = ", ".join(missing)
    if shutil.which("apt-get") is None:
        return f"{names} not found, and there is no apt-get to install it with"
    if os.geteuid() != 0:
        return f"{names} not found, and only root can install it with apt-get"
    packages = sorted({PACKAGES[tool] for tool in missing})
    for argv in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        error = run(argv, INSTALL_SECONDS_MAX)
        if error is not None:
            return f"apt-get could not install {' '.join(packages)}: {error}"
    return None


def is_current() -> bool:
    """Whether the jars are there and were fetched for this very pom."""
    stamp = LIBS / "pom.xml"
    return stamp.exists() and stamp.read_bytes() == POM.read_bytes()


def fetch() -> str | None:
    """Copies the jars that the pom names, and what they need; the reason when it fails."""
    if is_current():
        say(f"{LIBS} is up to date")
        return None
    shutil.rmtree(LIBS, ignore_errors=True)
    LIBS.mkdir(parents=True)
    argv = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    error = run([*argv, f"-DoutputDirectory={LIBS}"], FETCH_SECONDS_MAX)
    if error is not None:
        return f"Maven could not fetch the jars: {error}"
    shutil.copyfile(POM, LIBS / "pom.xml")
    say(f"{len(list(LIBS.glob('*.jar')))} jars in {LIBS}")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--strict", action="store_true", help="fail when the jars cannot be fetched"
    )
    strict = parser.parse_args().strict
    reason = None if is_current() and shutil.which("java") else install_tools()
    reason = reason or fetch()
    if reason is not None:
        say(f"the Java tests will be skipped: {reason}")
    return 1 if reason is not None and strict else 0


if __name__ == "__main__":
    raise SystemExit(main())
