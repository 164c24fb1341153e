"""`python -m tests.apache`: Apache Kafka's integration tests against Penstock and against Kafka.

Prints a table: class, passed here, passed there, why they differ. Exits with 1 when a difference
has no reason in `reasons.toml`, or a reason no difference. Each class has a JVM of its own, several
run side by side: most of their time is waiting. What failed is run once more at the end, alone.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from . import jvm, page, results
from .comparison import compare, load
from .jvm import Outcome
from .results import Tallies


def say(text: str) -> None:
    print(text, flush=True)


def run_class(target: str, name: str) -> list[Outcome]:
    outcomes = jvm.run(target, [name], results.FOLDER / "reports" / target / name)
    say(f"{target}: {name}: {told(results.tallies(outcomes))}")
    return outcomes


def run_again(target: str, name: str, failed: set[str]) -> Tallies:
    """Runs methods once more. Nothing else runs meanwhile: some tests hold only on a quiet machine.

    Examples are those of PlaintextConsumerPollTest with several consumers and a session timeout.
    Their members have one second to join again and learn of a rebalance every three seconds, so
    they find each other only if they come to the empty group within its initial delay of 10 ms.
    Else each may join just after the other was dropped. The rules are the same on Kafka's brokers.
    """
    reports = results.FOLDER / "reports" / target / f"{name}-again"
    found = results.tallies(jvm.run(target, sorted(failed), reports))
    say(f"{target}: {name}: once more, alone: {told(found)}")
    return found


def told(found: Tallies) -> str:
    return "{} of {}".format(*results.counts(found))


def run_missing(target: str, classes: list[str], jobs: int, once: bool) -> None:
    """Runs the classes that have no outcome yet, then once more what failed in them."""
    left = [name for name in classes if results.read(target, name) is None]
    again: dict[str, tuple[Tallies, set[str]]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(run_class, target, name): name for name in left}
        for run in as_completed(runs):
            name, outcomes = runs[run], run.result()
            found = results.tallies(outcomes)
            failed = {outcome.unique_id for outcome in outcomes if not outcome.passed}
            if failed and not once:
                again[name] = found, failed
            else:
                results.write(target, name, found)
    for name, (found, failed) in again.items():
        second = run_again(target, name, failed)
        results.write(target, name, results.with_second_chances(found, second))


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
