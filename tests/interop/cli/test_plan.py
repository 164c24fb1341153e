"""`penstock plan` as a person calls it: the example of docs/planning.md, JSON, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.penstock_only
Run = Callable[..., Any]
PAGE = (Path(__file__).parents[3] / "docs" / "planning.md").read_text()
COMMANDS = re.findall(r"^\$ penstock (.*)$", PAGE, re.MULTILINE)
LOAD = ("plan", "--size", "1K", "--retention", "1d")


def test_the_example_of_the_page(run_at: Run) -> None:
    [shown] = re.findall(r"It begins with:\n\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    ended = run_at("127.0.0.1:1", *COMMANDS[0].split())
    assert ended.code == 0
    assert ended.out.startswith(shown)
    said = re.findall(r"^- .*$|^\S+ +s of a core .*$", ended.out[len(shown) :], re.MULTILINE)
    assert len(said) > 10, "every figure and every assumption is told"


def test_the_regions_of_the_page_as_json(run_at: Run) -> None:
    ended = run_at("127.0.0.1:1", *COMMANDS[1].split())
    told = json.loads(ended.out)
    eu, us = told["regions"]
    assert [region["region"]["name"] for region in (eu, us)] == ["eu", "us"]
    assert eu["region"]["mirrored_rate"] == us["region"]["rate"] == 20_000
    assert eu["disk_bytes"] == pytest.approx(us["disk_bytes"]), "each has all messages"
    assert told["total"]["nodes"] == eu["nodes"] + us["nodes"]
    assert {need["what"] for need in eu["needs"]} >= {"disk", "network in", "processor"}
    assert all(figure["source"] for figure in told["figures"])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "say what is published either by --rate N/s or by a --region NAME=N/s for each"),
        (("--rate", "1k/s", "--region", "a=1/s"), "either by --rate N/s or by a --region"),
        (("--rate", "soon"), "'soon' is not a rate: write it as 500/s, 50k/s, 1.5M/s or 2M/d"),
        (("--rate", "0"), "--rate is 0, which needs nothing: give what it is at least"),
        (("--rate", "1", "--size", "1G"), "--size is 1.0 GiB, and a request has 100.0 MiB at most"),
        (("--rate", "1", "--headroom", "100%"), "--headroom is 100%, which leaves no disk"),
        (("--rate", "1", "--disk", "1G"), "room for a segment of 1.0 GiB, so give more"),
        (("--rate", "1", "--network", "fast"), "no speed of a network: write it as 500Mbit/s"),
        (("--rate", "1", "--peak", "inf"), "--peak is inf, which is no number to multiply with"),
        (("--rate", "1", "--replication", "0"), "'--replication'"),
        (("--region", "eu=1/s", "--mirror", "ue"), "--mirror ue is none of the regions"),
        (("--region", "eu=1/s", "--region", "eu=1/s"), "a region is given twice"),
        (
            ("--region", "a=1/s", "--region", "b=0", "--mirror", "none"),
            "region b publishes nothing and gets no copy: give it a rate, or leave it out",
        ),
    ],
)
def test_nonsense_is_refused(run_at: Run, args: tuple[str, ...], said: str) -> None:
    ended = run_at("127.0.0.1:1", *LOAD, *args)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.sentence
