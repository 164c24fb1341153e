"""`make bench-peers`: Penstock beside its peers, the same loads on each, in turns.

Results go to build/bench: peers.json (every single value, written after each round), peers.md and
peers-*.svg. Server and load share the machine's cores: run it on a machine that does nothing else.
A peer that is not installed is reported as missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from bench.run import OUT, machine

from penstock.cli.bench.broker import touch_memory
from penstock.cli.values import parse_size

from . import queues, three_nodes
from .figures import Results
from .goals import GOALS
from .kafka_server import KafkaServer
from .nats_server import NatsServer
from .penstock_server import PenstockServer
from .rabbitmq_server import RabbitMQQuorumQueue, RabbitMQStream
from .redis_server import RedisServer
from .rounds import Kind, Plan, Progress, run_rounds
from .table import markdown
from .workloads import WORKLOADS

PEERS: tuple[Kind, ...] = (
    PenstockServer,
    KafkaServer,
    NatsServer,
    RabbitMQQuorumQueue,
    RabbitMQStream,
    RedisServer,
)
ON_ONE = (*WORKLOADS, *queues.WORKLOADS)
CATALOGUE = (*ON_ONE, *three_nodes.WORKLOADS)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="rounds (default 5)")
    parser.add_argument(
        "--go-on",
        action="store_true",
        help="with the rounds that are missing in peers.json, as of a run that was cut short",
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="per case (default 1)")
    parser.add_argument(
        "--only",
        action="append",
        metavar="TEXT",
        help="only workloads that have this in their section or name, such as `cluster`; may be"
        " given several times",
    )
    parser.add_argument(
        "--peers",
        default="",
        metavar="A,B",
        help="only peers that have one of these in their name (default all), such as"
        " `penstock,kafka`",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=OUT / "peers-data",
        help="where servers keep their data; on the disk that is to be measured",
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where the results go")
    parser.add_argument(
        "--touch-memory",
        default="6G",
        metavar="SIZE",
        help="memory to write to at first, since a virtual machine's is slow at first use"
        " (default 6G, at most half of what is available)",
    )
    return parser.parse_args()


def chosen_peers(text: str) -> list[Kind]:
    """The kinds that are asked for."""
    wanted = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [part for part in wanted if not any(part in k.name.lower() for k in PEERS)]
    if unknown:
        names = ", ".join(kind.name for kind in PEERS)
        raise SystemExit(f"no peer has {unknown[0]!r} in its name: choose of {names}")
    return [k for k in PEERS if not wanted or any(part in k.name.lower() for part in wanted)]


def told_of(kind: Kind, missing: str | None) -> dict[str, str | None]:
    """What the table's notes say of a peer; its durability is added when it runs."""
    if missing:
        return {"missing": missing}
    told = {"missing": None, "version": kind.version(), "replication": kind.replication}
    return told if kind.fsync_before_ack else told | {"durability_fsync": "cannot"}


def report(results: Results, out: Path) -> None:
    goals = (*GOALS, *queues.GOALS, *three_nodes.GOALS)
    (out / "peers.md").write_text(markdown(results, CATALOGUE, goals))
    try:
        from .plots import draw_all
    except ImportError as e:
        print(f"no plots are drawn ({e}): pip install 'penstock[bench]'", file=sys.stderr)
        return
    draw_all(results, CATALOGUE, out)


def main() -> None:
    wanted = options()
    # So that a run which is told to stop stops its server, too; Ctrl-C does by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    texts = wanted.only or [""]
    chosen = [w for w in CATALOGUE if any(text in f"{w.section}\n{w.name}" for text in texts)]
    if not chosen:
        raise SystemExit(f"no workload has {' or '.join(texts)!r} in its section or name")
    earlier = wanted.out / "peers.json"
    if wanted.go_on and earlier.exists():
        results = Results.read(earlier)
    else:
        results = Results(machine(), wanted.seconds)
    done = results.rounds()
    kinds = []
    for kind in chosen_peers(wanted.peers):
        missing = kind.missing()
        results.peers.setdefault(kind.name, {}).update(told_of(kind, missing))
        if missing:
            print(f"{kind.name} is missing: {missing}", file=sys.stderr)
        else:
            kinds.append(kind)
    on_one = [workload for workload in chosen if workload in ON_ONE]
    turns = three_nodes.chosen_turns(chosen)
    in_clusters = [kind for kind in kinds if kind in three_nodes.KINDS]
    wanted.out.mkdir(parents=True, exist_ok=True)
    wanted.dir.mkdir(parents=True, exist_ok=True)
    touch_memory(parse_size(wanted.touch_memory))
    busy = os.getloadavg()[0]
    print(f"{machine()}; load average {busy:.2f} before the start", file=sys.stderr)
    progress = Progress(
        (wanted.runs - done) * (len(kinds) * len(on_one) + len(in_clusters) * len(turns))
    )

    def round_done(number: int) -> None:
        for turn in turns:
            three_nodes.run_round(
                turn, in_clusters, number, wanted.seconds, wanted.dir, results, progress
            )
        results.write(wanted.out / "peers.json")
        report(results, wanted.out)

    plan = Plan(kinds, on_one, wanted.runs, wanted.seconds, wanted.dir, done)
    run_rounds(plan, results, progress, round_done)
    print((wanted.out / "peers.md").read_text())


if __name__ == "__main__":
    main()
