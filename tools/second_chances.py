"""Which failed tests may run once more, alone, and the record of each that did.

The suite runs on every core, with clusters, Sparks and simulators side by side. A test of real
processes that fails there and passes alone was upset by the machine, or has a race: a bug of the
test or of the product, but not of the change that is being checked. So it gets a second chance, and
is recorded until somebody has found the cause. `refusal` says when there is none:

- A test below `NO_CLOCK` depends on no clock, so a busy machine is no excuse for it.
- A worker that crashed, and a file that could not be collected, are never forgiven.
- More than `CHANCES_MAX` failures are more than a busy machine explains.

Records are JSON files in `build/second-chances`, of which the newest `RECORDS_MAX` are kept. The
causes that are known stand in CONTRIBUTING.md. A test with a seed of its own records it as a
property named as the variable that repeats it: `record_property("PENSTOCK_KILL_SEED", seed)`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import machine

Note = dict[str, Any]

# What a note is of; and the variable that says in which folder the notes of a run belong.
TEST, CRASH, COLLECTION = "test", "crash", "collection"
NOTES_VARIABLE = "FAILURE_NOTES"
FOLDER = Path("build") / "second-chances"
CHANCES_MAX = 3
RECORDS_MAX = 200
NAME_CHARS_MAX = 120
NO_CLOCK = ("tests/unit/", "tests/scenario/", "tests/sim/")
KNOWN_HEADING = "## Second chances"
PASSED, FAILED = "passed", "failed"


def read_notes(folder: Path) -> list[Note]:
    """What the failures of a run wrote down, in their order."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def refusal(notes: Sequence[Note]) -> str | None:
    """Why these failures get no second chance, or None if they do."""
    if not notes:
        return "pytest failed, but no test did."
    if beyond := [note["test"] for note in notes if note["kind"] != TEST]:
        return f"A crash, or a file that cannot be collected, is never forgiven: {listed(beyond)}"
    names = sorted({note["test"] for note in notes})
    if timeless := [name for name in names if name.startswith(NO_CLOCK)]:
        return f"These depend on no clock, so they get no second chance: {listed(timeless)}"
    if len(names) > CHANCES_MAX:
        return f"{len(names)} tests failed, more than a busy machine explains."
    return None


def record(root: Path, notes: Sequence[Note], seed: int, alone: str) -> Path:
    """Writes down one second chance and how it ended; forgets the oldest beyond `RECORDS_MAX`.

    `notes` are of one test, which may have failed and then not been tidied up.
    """
    note, *more = notes
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", note["test"].removeprefix("tests/"))[:NAME_CHARS_MAX]
    path = folder / f"{time.time_ns()}-{name}.json"
    seeds = {"PYTHONHASHSEED": seed} | note["properties"]
    set_seeds = " ".join(f"{name}={value}" for name, value in seeds.items())
    again = f"{set_seeds} .venv/bin/pytest -n 0 --hypothesis-seed={seed} '{note['test']}'"
    found = {"test": note["test"], "alone": alone, "seed": seed, "again": again} | note
    found["more"] = more
    path.write_text(json.dumps(found, indent=1))
    for old in sorted(folder.glob("*.json"))[:-RECORDS_MAX]:
        old.unlink()
    return path


def recorded_since(root: Path, seconds: float) -> list[Path]:
    """The records since a moment, in seconds since 1970."""
    found = sorted((root / FOLDER).glob("*.json"))
    return [path for path in found if int(path.name.partition("-")[0]) >= seconds * 1e9]


def known(root: Path) -> dict[str, str]:
    """Tests whose second chances have a known cause: name without parameters, and the cause."""
    page = root / "CONTRIBUTING.md"
    text = page.read_text() if page.exists() else ""
    section = text.partition(f"\n{KNOWN_HEADING}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(tests/[^`]+)` \| (.+?) \|$", section, re.MULTILINE)
    return dict(rows)


def report(root: Path, since: float) -> str:
    """What to print when everything else is done."""
    paths, causes = recorded_since(root, since), known(root)
    if not paths:
        return "Second chances: none."
    lines = [f"SECOND CHANCES: {len(paths)}. Each is a bug of a test or of the product."]
    for path in paths:
        found = json.loads(path.read_text())
        cause = causes.get(found["test"].partition("[")[0])
        seconds = found["machine"].get("test_seconds", "?")
        lines += [
            f"  {found['test']}",
            f"    failed   {found['reason']} ({found['phase']}, after {seconds} s)",
            f"    alone    {found['alone']}",
            f"    machine  {machine.in_words(found['machine'])}",
            f"    again    {found['again']}",
            f"    cause    {cause or 'UNKNOWN: mend it, or name the cause in CONTRIBUTING.md'}",
            f"    record   {path.relative_to(root)}",
        ]
    return "\n".join(lines)


def listed(names: Sequence[str]) -> str:
    return ", ".join(names)
