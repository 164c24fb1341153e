"""Nodes for tests: real processes on free ports of this machine, ready in a fraction of a second.

```python
from penstock.testing import node

with node() as broker:
    topic = broker.create_topic(partitions=3)
    run_what_is_tested(broker.bootstrap_servers, topic)
```

`node` is one node, `cluster` several; pytest finds fixtures of both by itself
(`penstock.testing.plugin`), which nothing else here needs. What is public is in `__all__`;
docs/testing.md tells of it with examples. Importing this imports nothing of a node: every pytest
run of an environment that has Penstock does it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.testing.clusters import Cluster
from penstock.testing.processes import Node, NodeFailed, Value

__all__ = ["Cluster", "Node", "NodeFailed", "cluster", "node"]


def node(
    settings: Mapping[str, Value] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    **more: Value,
) -> Node:
    """A node: `with node() as broker:`. Settings are a broker's, by Kafka's names in `settings` or
    as keywords with `_` for `.`; data and log lie in `folder`, or in a temporary one.
    """
    return Node(_all(settings, more), folder)


def cluster(
    nodes: int = 3,
    settings: Mapping[str, Value] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    **more: Value,
) -> Cluster:
    """A cluster of so many nodes: `with cluster(3) as brokers:`. All of them get the settings."""
    return Cluster(nodes, _all(settings, more), folder)


def _all(settings: Mapping[str, Value] | None, more: Mapping[str, Value]) -> dict[str, Value]:
    return {**(settings or {}), **{name.replace("_", "."): value for name, value in more.items()}}
