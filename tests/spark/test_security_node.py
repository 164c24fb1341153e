"""Source and sink on a node of ours with TLS and SASL; all of it is in `test_security.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.sink import sink_options
from penstock.spark.writer import Work, commit_all
from support import secured as ways
from support.helpers import TopicMaker
from support.secured_node import SecuredNode
from support.spark_sink import chunk, run_task
from support.waiting import eventually

from .test_security import options_of, read_all


@pytest.mark.penstock_only
def test_every_way_in_writes_exactly_once_and_reads(tmp_path: Path) -> None:
    with SecuredNode(tmp_path / "node") as node:
        node.add_user()
        for way in (ways.scram_tls, ways.plain_tls, ways.certificate_in_a_file):
            topic = TopicMaker(node, lambda way=way: way.__name__)()  # type: ignore[misc]
            options = options_of(way(node))  # type: ignore[arg-type]
            sink = sink_options({**options, "topic": topic})
            for _ in range(2):
                handed = run_task(sink, Work(f"way-{topic}", 0, 0), chunk([b"a", b"b"]))
                commit_all(sink, [handed])
            eventually(lambda o=options, t=topic: read_all(o, t) == [b"a", b"b"])  # type: ignore[misc]
