"""Runs the few tests that have just failed once more, one after the other and with nothing beside
them: `python tools/alone.py`, which `make test` does when pytest found failures.

The suite runs on every core, with clusters, Sparks and simulators side by side. A test that fails
there and passes alone was upset by the machine, or has a race: that is a bug, and it is named here
for whoever reads the output, but it says nothing of the change that is being checked. A test that
fails alone, or more than `UPSET_MAX` of them, fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
UPSET_MAX = 3


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    if not FAILED.exists():
        say(f"{FAILED} is missing: pytest notes there which tests failed.")
        return 1
    names = sorted(json.loads(FAILED.read_text()))
    if len(names) > UPSET_MAX:
        say(f"{len(names)} tests failed, more than a busy machine explains.")
        return 1
    say(f"Once more, alone: {', '.join(names)}")
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", *names], cwd=ROOT, check=False
    )
    if again.returncode == 0:
        say(f"FLAKY, and to be mended: {', '.join(names)} failed beside others and passed alone.")
    return again.returncode


if __name__ == "__main__":
    raise SystemExit(main())
