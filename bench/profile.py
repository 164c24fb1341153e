"""Where the processor's time goes on the hot paths: `make profile`.

For each path a node (three for replication) is put under the raw load of `penstock bench`, and its
process is sampled by py-spy: a flame graph, and a table of the functions that were found at work
most often. Where the kernel lets perf sample, it shows what py-spy cannot see: the C library, the
interpreter, the kernel. Everything goes to build/profile; nothing of it belongs into git.

The nodes run as plain Python, since py-spy sees no compiled frames. It has to look into another
process: that needs the same user and ptrace, or root.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.cli.bench.broker import running_node, temporary_data_dir

from .cluster.nodes import NODES, Options, addresses, running
from .run import ROOT

OUT = ROOT / "build" / "profile"
SAMPLES_PER_S = 500
LOAD_BEGINS_S_MAX = 15.0
LOAD_SPARE_S = 20.0
"""The load lasts so much longer than its sampling; it is stopped when that is done."""
FUNCTIONS_SHOWN = 25
PERF_LINES_SHOWN = 40
COPIES = {"default.replication.factor": str(NODES), "min.insync.replicas": "2"}


class HotPath(NamedTuple):
    """What is started, and the load as `penstock bench` has it, or as a module of this folder."""

    nodes: int
    load: tuple[str, ...]
    module: str = "penstock.cli"

    @property
    def command(self) -> str:
        """The load, for people."""
        return " ".join(("python -m", self.module, *self.load))


PATHS = {
    "produce-batches": HotPath(
        1, ("bench", "produce", "--batch-bytes", "256K", "--connections", "8")
    ),
    "produce-single": HotPath(1, ("bench", "produce", "--batch-bytes", "0", "--connections", "64")),
    "fetch": HotPath(1, ("bench", "consume", "--fetch-bytes", "1M")),
    "fetch-at-the-tail": HotPath(1, ("bench", "latency", "--rate", "5000")),
    "replication": HotPath(
        NODES, ("bench", "produce", "--batch-bytes", "16K", "--connections", "8")
    ),
    "share": HotPath(1, ("--consumers", "8"), "bench.share_load"),
    "share-single": HotPath(1, ("--consumers", "64", "--one"), "bench.share_load"),
}


class Target(NamedTuple):
    """Where the load goes, and the processes to look at, by name."""

    bootstrap: str
    pids: dict[str, int]


@contextmanager
def target(path: HotPath) -> Iterator[Target]:
    """The nodes of a path; they are gone afterwards, with their data."""
    if path.nodes == 1:
        with temporary_data_dir(None) as folder, running_node(folder) as node:
            yield Target(node.bootstrap, {"node": node.pid})
        return
    options = Options(kills=0, seconds=0, catch_up_bytes=0, touch_bytes=0, folder=None)
    with running(options, COPIES) as cluster:
        bootstrap = ",".join(f"{host}:{port}" for host, port in addresses(cluster))
        yield Target(bootstrap, {f"node-{n}": node.pid for n, node in cluster.nodes.items()})


@contextmanager
def under_load(path: HotPath, bootstrap: str, seconds: float) -> Iterator[None]:
    """Loads the broker until the block ends."""
    command = [sys.executable, "-m", path.module, *path.load]
    command += ["--bootstrap", bootstrap, "--seconds", str(seconds + LOAD_SPARE_S)]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        yield
        if load.poll():
            _, complaint = load.communicate()
            raise SystemExit(f"the load `{path.command}` failed: {complaint.strip()}")
    finally:
        load.terminate()
        load.communicate()


def sample(pids: Mapping[str, int], name: str, seconds: float, form: str) -> dict[str, Path]:
    """Has py-spy sample the processes at the same time; a file for each."""
    suffix = {"flamegraph": "svg", "raw": "txt"}[form]
    files = {who: OUT / f"{name}-{who}.{suffix}" for who in pids}
    spies = [
        subprocess.Popen(
            [
                str(Path(sys.executable).with_name("py-spy")),
                *("record", "--pid", str(pid), "--duration", str(round(seconds))),
                *("--rate", str(SAMPLES_PER_S), "--format", form, "--function"),
                *("--output", str(files[who])),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who, pid in pids.items()
    ]
    complaints = [spy.communicate()[1] for spy in spies]
    for spy, complaint in zip(spies, complaints, strict=True):
        if spy.returncode:
            raise SystemExit(f"py-spy cannot sample a node: {complaint.strip()}")
    return files


def functions(stacks: str) -> Iterator[str]:
    """Of collapsed stacks: the functions that were at work themselves, most often first."""
    found: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        found[stack.rpartition(";")[2]] += int(count)
    total = found.total()
    yield "| share of samples | function |"
    yield "|---:|---|"
    for function, count in found.most_common(FUNCTIONS_SHOWN):
        yield f"| {100 * count / total:.1f} % | `{function}` |"


def perf(pid: int, name: str, seconds: float) -> str:
    """What perf saw of one process, or why it saw nothing."""
    if shutil.which("perf") is None:
        return "There is no perf here (Debian: apt install linux-perf)."
    data = OUT / f"{name}.perf"
    record = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", str(SAMPLES_PER_S)]
    record += ["--pid", str(pid), "--output", str(data), "--", "sleep", str(seconds)]
    done = subprocess.run(record, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"perf cannot sample here: {done.stderr.strip()}"
    report = ["perf", "report", "--stdio", "--input", str(data), "--sort", "dso,symbol"]
    told = subprocess.run(report, capture_output=True, text=True, check=False).stdout
    lines = [line for line in told.splitlines() if line and not line.startswith("#")]
    return "\n".join(["```", *lines[:PERF_LINES_SHOWN], "```"])


def profile(name: str, seconds: float) -> str:
    """One path: its section of the report."""
    path = PATHS[name]
    with target(path) as nodes, under_load(path, nodes.bootstrap, 3 * seconds + LOAD_BEGINS_S_MAX):
        graphs = sample(nodes.pids, name, seconds, "flamegraph")
        stacks = sample(nodes.pids, name, seconds, "raw")
        seen = {who: perf(pid, f"{name}-{who}", seconds) for who, pid in nodes.pids.items()}
    lines = [f"## {name}", "", f"`{path.command}`", ""]
    for who in nodes.pids:
        lines += [f"### {who}: {graphs[who].name}", "", *functions(stacks[who].read_text()), ""]
        lines += [seen[who], ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Profile the hot paths; build/profile/profile.md.")
    parser.add_argument("--seconds", type=float, default=5.0, help="per sampling (default 5)")
    parser.add_argument("--only", default="", help="only paths whose name contains this text")
    options = parser.parse_args()
    chosen = [name for name in PATHS if options.only in name]
    if not chosen:
        raise SystemExit(f"no path has {options.only!r} in its name: {', '.join(PATHS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    sections = []
    for name in chosen:
        print(f"{name}: sampling", file=sys.stderr, flush=True)
        sections.append(profile(name, options.seconds))
    report = OUT / "profile.md"
    report.write_text("\n".join(sections))
    print(f"Flame graphs and {report.relative_to(ROOT)} are there.")


if __name__ == "__main__":
    main()
