"""`penstock serve` behind its options: one event loop, one node, until a signal ends it.

Prints one line on stdout when the node serves, which scripts wait for: `ready:
kafka=HOST:PORT http=HOST:PORT build=compiled data=DIR`. SIGTERM and SIGINT stop the node cleanly:
what is in flight is answered, the logs are flushed and marked clean. A second signal does not wait
for clients.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import sys

import uvloop

from penstock.base.build import kind_of_build
from penstock.base.errors import PenstockError
from penstock.config.broker_config import BrokerConfig
from penstock.node.descriptors import raise_limit
from penstock.node.node import Node, NodeFailed
from penstock.node.pid_file import pid_file
from penstock.observe.logs import set_up_logging

log = logging.getLogger("penstock.node")

GC_THRESHOLDS = (5_000, 20, 200)
"""When the cycle collector looks at each generation. The hot path creates no cycles and leaves
little behind. But a request with very many elements fills the first two, and the loop waits while
they are looked at: 5,000 objects take a millisecond or two, 100,000 up to twenty.
"""


MALLOC_TRIM_BYTES = 64 * 1024 * 1024
MALLOC_MMAP_BYTES = 32 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def run(config: BrokerConfig) -> int:
    """Serve until a signal; returns the exit code."""
    writer = set_up_logging(
        level=config.penstock_log_level.upper(),
        form="json" if config.penstock_log_format == "json" else "text",
        stream=sys.stderr,
    )
    _keep_freed_memory()
    raise_limit()
    try:
        with pid_file(config.data_dir):
            uvloop.run(_serve(config))
    except (PenstockError, OSError) as e:
        log.error("the node cannot continue: %s", e)
        return 1
    finally:
        writer.close()
    return 0


def _keep_freed_memory() -> None:
    """Make the C library keep freed memory for reuse instead of returning it to the system.

    Requests of a megabyte are allocated and freed hundreds of times a second; returning
    their pages to the system and faulting them in again took a quarter of the CPU time of
    such a load.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # not the GNU C library
    mallopt(_M_MMAP_THRESHOLD, MALLOC_MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, MALLOC_TRIM_BYTES)


async def _serve(config: BrokerConfig) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    node = Node(config)

    def on_signal() -> None:
        if stop.is_set():
            node.hurry()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        if not await _started(node, stop):
            return
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        http = f" http={node.http_address}" if node.http_address else ""
        # One write, so that the line stays whole where stdout and stderr are the same terminal.
        sys.stdout.write(
            f"ready: kafka={node.kafka_address}{http} build={kind_of_build()} "
            f"data={config.data_dir}\n"
        )
        sys.stdout.flush()
        await node.unless_failed(stop.wait())
    except NodeFailed:
        node.hurry()
        raise
    finally:
        await node.stop()


async def _started(node: Node, stop: asyncio.Event) -> bool:
    """Start the node, which may wait for others; False when a signal came before it was done."""
    starting = asyncio.create_task(node.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    await starting
    return True
