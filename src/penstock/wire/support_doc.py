"""Writes docs/protocol-support.md: every API of Kafka 4.3, and which of its versions are served.

This room knows no handlers, so what is served is passed in: `render` takes it as a mapping, and the
command takes the name of a module whose `APIS` maps API keys to objects with `versions`:

    python -m penstock.wire.support_doc penstock.api.handlers > docs/protocol-support.md
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping

from penstock.wire.apis import APIS, OUR_KEYS_FROM, Api, ApiKey

_HEAD = """\
# Protocol support

This page is generated; do not edit it. It is written anew by

```
python -m penstock.wire.support_doc penstock.api.handlers > docs/protocol-support.md
```

The versions of Kafka are those that Apache Kafka 4.3 offers, without the ones that it holds to be
unstable. "For" says to whom Kafka offers the API: to clients, to the nodes of the metadata
quorum, or to both. A client learns what is served from ApiVersions and chooses by itself. Produce
is offered there from version 0, as Kafka does, though versions 0 to 2 are refused. Where an API
differs from Kafka's on purpose is in [differences](differences.md). APIs from 20000 on are ours
([ADR 23](adr/0023-roles-are-set-by-an-api-of-our-own.md),
[ADR 32](adr/0032-queues-are-seen-and-redriven-at-the-leader.md)).
"""

_FOR = {"broker": "clients", "controller": "quorum", "both": "both"}


def render(served: Mapping[ApiKey, range]) -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_summary(served), "", *_table(served), ""])


def _summary(served: Mapping[ApiKey, range]) -> Iterator[str]:
    whole = sum(served.get(key) == api.stable_versions for key, api in APIS.items())
    yield f"Served are {len(served)} of {len(APIS)} APIs, {whole} of them in all versions."


def _table(served: Mapping[ApiKey, range]) -> Iterator[str]:
    yield "| key | API | for | Kafka 4.3 | Penstock |"
    yield "|---:|---|---|---|---|"
    for key, api in APIS.items():
        yield _row(key, api, served.get(key))


def _row(key: ApiKey, api: Api, versions: range | None) -> str:
    name = "".join(word.capitalize() for word in key.name.split("_"))
    ours = _versions_text(versions) if versions else "not served"
    kafkas = _versions_text(api.stable_versions) if key < OUR_KEYS_FROM else "-"
    return f"| {key.value} | {name} | {_FOR[api.listener]} | {kafkas} | {ours} |"


def _versions_text(versions: range) -> str:
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first} to {last}"


def main(module: str) -> None:
    """Writes the page for the `APIS` of `module` to stdout."""
    apis = importlib.import_module(module).APIS
    sys.stdout.write(render({ApiKey(key): api.versions for key, api in apis.items()}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m penstock.wire.support_doc MODULE")
    main(sys.argv[1])
