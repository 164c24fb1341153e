"""Runs pytest, and the few tests that failed once more, alone: `python -m tools.suite -n 3 ...`.

All options but three are pytest's. A run has one seed, printed at its start, for Python's hashes
and for Hypothesis; `SUITE_SEED` in the environment repeats one. Which failures get a second chance,
and where it is recorded, says `second_chances.py`. The run passes if pytest does, or if each test
that failed got a second chance and passed then, not skipped; nothing else is forgiven.

`--since` is when the whole of `make test` began (seconds since 1970): the second chances from then
on are printed last. `--report` only prints them. `--root` is the folder whose tests run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from tools import second_chances

PROJECT = Path(__file__).resolve().parent.parent
NOTES = Path("build") / "failures"
SEED = "SUITE_SEED"
SEED_MAX = 2**32 - 1
ALL_PASSED, SOME_FAILED = 0, 1


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Suite:
    """One run in one folder, with one seed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.seed = seed
        self.notes = root / NOTES

    def run(self, options: Sequence[str]) -> int:
        """Runs everything, then gives the second chances; the exit code."""
        code = self._pytest(options)
        notes = second_chances.read_notes(self.notes)
        # xdist replaces a worker that died between two tests, and is content: there is a note then.
        if code not in (ALL_PASSED, SOME_FAILED) or (code == ALL_PASSED and not notes):
            return code
        if why := second_chances.refusal(notes):
            say(why)
            return SOME_FAILED
        return self._alone(notes)

    def _alone(self, notes: Sequence[second_chances.Note]) -> int:
        names = sorted({note["test"] for note in notes})
        say(f"Once more, alone: {second_chances.listed(names)}")
        failed = 0
        for name in names:
            alone = second_chances.PASSED if self._passes(name) else second_chances.FAILED
            failed += alone == second_chances.FAILED
            own = [note for note in notes if note["test"] == name]
            second_chances.record(self.root, own, self.seed, alone)
        return SOME_FAILED if failed else ALL_PASSED

    def _passes(self, name: str) -> bool:
        results = self.root / "build" / "alone.xml"
        code = self._pytest(["-n", "0", f"--junitxml={results}", name])
        if code != ALL_PASSED:
            return False
        cases = list(ElementTree.parse(results).iter("testcase"))
        # Only one that ran has shown anything: a test that is skipped now has not passed.
        return len(cases) == 1 and not any(child.tag == "skipped" for child in cases[0])

    def _pytest(self, options: Sequence[str]) -> int:
        shutil.rmtree(self.notes, ignore_errors=True)
        (self.root / "build").mkdir(exist_ok=True)
        environment = os.environ | {
            second_chances.NOTES_VARIABLE: str(self.notes),
            "PYTHONHASHSEED": str(self.seed),
        }
        command = [sys.executable, "-m", "pytest", "-p", "tools.failure_notes"]
        command += [f"--hypothesis-seed={self.seed}", *options]
        return subprocess.run(command, cwd=self.root, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.suite", allow_abbrev=False)
    parser.add_argument("--root", type=Path, default=PROJECT, help="the folder whose tests run")
    parser.add_argument("--since", type=float, default=time.time(), help="when everything began")
    parser.add_argument("--report", action="store_true", help="only print the second chances")
    asked, options = parser.parse_known_args()
    root = asked.root.resolve()
    code = ALL_PASSED
    if not asked.report:
        seed = int(os.environ.get(SEED) or random.randint(0, SEED_MAX))
        say(f"The seed of this run is {seed}; {SEED}={seed} repeats it.")
        code = Suite(root, seed).run(options)
    say(second_chances.report(root, asked.since))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
