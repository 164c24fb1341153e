"""Starts nodes by `penstock.testing`, says which, and waits to be killed.

`python started_nodes.py running|paused|cluster|forked`; prints the nodes' process numbers and their
folder, on one line.
"""

from __future__ import annotations

import os
import sys
import time

from penstock.testing import cluster, node

FOREVER_S = 3_600


def main(kind: str) -> None:
    if kind == "cluster":
        nodes = list(cluster(2).start().nodes.values())
    else:
        nodes = [node().start()]
    if kind == "forked" and os.fork() == 0:
        time.sleep(FOREVER_S)  # it holds the pipe, too
    if kind == "paused":
        nodes[0].pause()
    print(*(one.pid for one in nodes), nodes[0].folder.parent, flush=True)
    time.sleep(FOREVER_S)


if __name__ == "__main__":
    main(sys.argv[1])
