"""`penstock plan`: what a load needs. Asks no cluster; the sums are in `arithmetic.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.cli.errors import did_you_mean, usage_error
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json
from penstock.cli.plan.arithmetic import Region, regions
from penstock.cli.plan.arithmetic import plan as plan_region
from penstock.cli.plan.options import LoadOptions, NodeOptions, some
from penstock.cli.plan.view import document, show
from penstock.cli.values import parse_pairs, parse_rate

MIRROR_ALL, MIRROR_NONE = "all", "none"


def plan(
    load_options: LoadOptions,
    node: NodeOptions,
    size: Annotated[
        str, typer.Option("--size", metavar="BYTES", help="Of a message: key, value and headers.")
    ],
    retention: Annotated[
        str, typer.Option("--retention", metavar="TIME", help="How long messages are kept, as 7d.")
    ],
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/s", help="Messages published, on average, as 50k/s."),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region",
            metavar="NAME=N/s",
            help="A region and what is published there, instead of --rate; may be repeated.",
        ),
    ] = None,
    mirror: Annotated[
        str,
        typer.Option(
            "--mirror",
            metavar="all|none|NAME",
            help="Which regions get a copy of what the others publish.",
        ),
    ] = MIRROR_ALL,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Say how many nodes, partitions and disks a load needs, in one region or several."""
    load = load_options.load(size, retention)
    plans = [plan_region(load, node, one) for one in _regions(rate, region or (), mirror)]
    if output_format is Format.JSON:
        print_json(document(load, node, plans))
    else:
        show(load, node, plans)


def _regions(rate: str | None, given: Sequence[str], mirror: str) -> list[Region]:
    if (rate is None) == (not given):
        raise usage_error(
            "say what is published either by --rate N/s or by a --region NAME=N/s for each region"
        )
    if rate is not None:
        return regions([("", some("--rate", parse_rate(rate)))], MIRROR_NONE)
    texts = parse_pairs(given, "region")
    if len(texts) != len(given):
        raise usage_error("a region is given twice: keep one --region of each name")
    if mirror not in (MIRROR_ALL, MIRROR_NONE, *texts):
        raise usage_error(
            f"--mirror {mirror} is none of the regions{did_you_mean(mirror, texts)}: name one of"
            f" {', '.join(texts)}, or write all or none"
        )
    found = regions([(name, parse_rate(text)) for name, text in texts.items()], mirror)
    for one in found:
        if one.rate + one.mirrored_rate == 0:
            raise usage_error(
                f"region {one.name} publishes nothing and gets no copy: give it a rate, or leave it"
                " out"
            )
    return found
