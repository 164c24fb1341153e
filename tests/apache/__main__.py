"""`python -m tests.apache`: Apache Kafka's integration tests against Penstock and against Kafka.

Prints a table: class, passed here, passed there, why they differ. Exits with 1 when a difference
has no reason in `reasons.toml`, or a reason no difference. Each class has a JVM of its own, several
run side by side: most of their time is waiting.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from concurrent.futures import ThreadPoolExecutor

from . import jvm, page, results
from .comparison import compare, load


def say(text: str) -> None:
    print(text, flush=True)


def run_class(target: str, name: str, once: bool) -> None:
    """Runs a class, then what failed in it once more, and keeps the outcome."""
    reports = results.FOLDER / "reports" / target / name
    outcomes = jvm.run(target, [name], reports)
    found = results.tallies(outcomes)
    again = sorted({outcome.unique_id for outcome in outcomes if not outcome.passed})
    if again and not once:
        second = jvm.run(target, again, reports.with_name(f"{name}-again"))
        found = results.with_second_chances(found, results.tallies(second))
    results.write(target, name, found)
    passed, ran = results.counts(found)
    say(f"{target}: {name}: {passed} of {ran}")


def run_missing(target: str, classes: list[str], jobs: int, once: bool) -> None:
    """Runs the classes that have no outcome yet."""
    left = [name for name in classes if results.read(target, name) is None]
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(run_class, target, name, once) for name in left]:
            done.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.apache", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="which classes, with * (default: all)")
    parser.add_argument("--target", choices=(jvm.PENSTOCK, jvm.KAFKA), help="run only this one")
    parser.add_argument("--jobs", type=int, default=2, help="JVMs at a time")
    parser.add_argument("--keep", action="store_true", help="go on with outcomes that are there")
    parser.add_argument("--once", action="store_true", help="do not run again what has failed")
    parser.add_argument("--report", action="store_true", help="run nothing: compare what is there")
    parser.add_argument("--page", action="store_true", help=f"write {page.PAGE.name}")
    given = parser.parse_args()
    if reason := jvm.missing():
        say(reason)
        return 1
    everything = jvm.annotated_classes()
    patterns = given.patterns or ["*"]
    classes = [n for n in everything if any(fnmatch.fnmatch(n, f"*{p}") for p in patterns)]
    if not classes:
        parser.error(f"no class ends like {' or '.join(patterns)}")
    if not given.report:
        if given.target != jvm.KAFKA and not given.keep:
            for name in classes:
                results.path_of(jvm.PENSTOCK, name).unlink(missing_ok=True)
        for target in (jvm.KAFKA, jvm.PENSTOCK):
            if given.target in (None, target):
                run_missing(target, classes, given.jobs, given.once)
    return show(classes, everything, given.page)


def show(classes: list[str], everything: list[str], write_page: bool) -> int:
    here = {name: results.read(jvm.PENSTOCK, name) for name in everything}
    there = {name: results.read(jvm.KAFKA, name) for name in everything}
    reasons = load()
    if write_page:
        whole = compare(everything, here, there, reasons)
        page.write(page.markdown(whole, reasons, page.totals(here, there)))
    chosen = compare(classes, here, there, reasons.about(classes))
    say(page.terminal(chosen))
    for problem in chosen.problems:
        say(f"PROBLEM {problem}")
    return 1 if chosen.problems else 0


if __name__ == "__main__":
    sys.exit(main())
