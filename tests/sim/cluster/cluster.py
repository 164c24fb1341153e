"""The world of one run: machines with their disks, clocks and nodes, on one loop and network.

The nodes are Penstock's own (`penstock.node.Node`), each in a `Process` that can be crashed,
paused, stopped and started again. What nodes log goes into the trace.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Coroutine
from typing import Any

from penstock.base.errors import InvariantBroken, PenstockError
from penstock.config.broker_config import broker_config
from penstock.keys.local import VARIABLE, key_entry
from penstock.node.node import Node

from .cleaner import install_cleaner
from .clock import SimClock, SimRng
from .disk import Disk
from .loop import PROCESS, Process, SimLoop
from .network import Network
from .patches import install
from .thresholds import KEY_ID
from .trace import Trace

PORT = 9092
CUT_BACK = "is cut back to offset"
"""How a node says that its leader lacks what was committed: never, without unclean elections."""
MEMORY_DISK = "/dev/shm"


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimLoop(self.random("loop"))
        self.trace = Trace(self.loop.time)
        self.paths = self.trace.paths
        self.network = Network(self.loop, self.random("network"), self.trace)
        self.loop.network = self.network
        self.disks: list[Disk] = []
        self.root, self._lock = _take_folder(seed)
        self.machines: dict[int, Machine] = {}
        self.broken: list[str] = []
        """What went wrong inside a node: broken invariants, callbacks that raised."""
        os.environ[VARIABLE] = key_entry(KEY_ID, 1, bytes(32))
        install(self.disks, self.network, self.loop)
        install_cleaner(self.random("cleaner"), self.paths)
        self.paths.watch()
        self.loop.set_exception_handler(self._callback_failed)
        self._logging = _Logging(self)

    def random(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}:{name}")

    def add_machine(self, node_id: int, settings: dict[str, str]) -> Machine:
        machine = self.machines[node_id] = Machine(self, node_id, settings)
        return machine

    def process(self, name: str) -> Process:
        """A process of its own machine, for clients."""
        return Process(name, name)

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(work, context=process.context.copy())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        self._logging.remove()
        shutil.rmtree(self.root, ignore_errors=True)
        os.unlink(self.root + ".lock")
        os.close(self._lock)

    def _callback_failed(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.trace.say("loop", f"{context.get('message')}: {error!r}")
        self.broken.append(f"{context.get('message')}: {error!r}")


def _take_folder(seed: int) -> tuple[str, int]:
    """A folder for the run, and the lock on it.

    Its name follows from the seed, since nodes name their files in messages to clients; only who
    runs a seed twice at the same time gets another.
    """
    base = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else tempfile.gettempdir()
    for more in range(100):
        root = os.path.join(base, f"penstock-sim-{os.getuid()}-{seed}" + f"-{more}" * bool(more))
        lock = _locked(root + ".lock")
        if lock is None:
            continue
        shutil.rmtree(root, ignore_errors=True)
        os.mkdir(root)
        return root, lock
    raise OSError(f"no folder for seed {seed} can be had in {base}")


def _locked(path: str) -> int | None:
    """A lock that no other run has. None, too, if the run that had it has just removed the file:
    the next run would make another, lock that, and empty the folder of this one.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


class Machine:
    """A computer: its disk and clock outlive the node's processes."""

    def __init__(self, world: World, node_id: int, settings: dict[str, str]) -> None:
        self.world = world
        self.id = node_id
        self.name = f"n{node_id}"
        root = os.path.join(world.root, self.name)
        self.disk = Disk(self.name, root, world.random(f"disk{node_id}"), world.trace)
        self.disk.beside = lambda: world.loop.working
        self.disk.now_ns = lambda: self.clock.now_ms() * 1_000_000
        world.disks.append(self.disk)
        self.clock = SimClock(world.loop)
        self.settings = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": root,
            "penstock.http.listen": "",
            "penstock.busy.poll.us": "0",  # it goes by the real time
            "penstock.encryption.provider": "environment",
            **settings,
        }
        self.process: Process | None = None
        self.node: Node | None = None
        self.serving = False
        self.failed: BaseException | None = None
        self._starts = 0
        self._boots = 0
        self._graves: list[Any] = []

    @property
    def up(self) -> bool:
        return self.process is not None

    @property
    def well(self) -> bool:
        """Started, and not paused."""
        return self.serving and self.process is not None and not self.process.paused

    def start(self) -> None:
        assert self.process is None
        self._starts += 1
        self.world.network.powered(self.name, on=True)
        process = self.process = Process(f"{self.name}#{self._starts}", self.name)
        rng = SimRng(f"{self.world.seed}:{process.name}")
        boot = f"{self.name}, boot {self._boots}"
        self.node = node = Node(broker_config(self.settings), self.clock, rng, boot)
        self.serving = False
        self.world.trace.say(self.name, "starts")
        self.world.spawn(process, self._start(node, process))

    async def _start(self, node: Node, process: Process) -> None:
        try:
            await node.start()
        except Exception as e:
            self.failed = e
            self.world.trace.say(self.name, f"did not start: {e!r}")
            logging.getLogger("penstock.sim").exception("start failed")
            await node.stop()
            self._gone(process, silently=False)
            return
        self.serving = True
        self.world.trace.say(self.name, "serves")

    async def stop(self) -> None:
        """As SIGTERM does."""
        node, process = self.node, self.process
        assert node is not None
        assert process is not None
        self.world.trace.say(self.name, "stops")
        await self.world.spawn(process, node.stop())
        self._gone(process, silently=False)

    def crash(self, *, power: bool) -> None:
        process = self.process
        assert process is not None
        self.world.trace.say(self.name, "loses power" if power else "is killed")
        if power:
            self.world.network.powered(self.name, on=False)
        self._gone(process, silently=power)
        if power:
            self._boots += 1
            self.disk.lose_power()

    def _gone(self, process: Process, *, silently: bool) -> None:
        self.world.loop.kill(process)
        self.world.network.process_died(process, silently=silently)
        self.disk.process_died()
        self._graves.append((process, self.node))
        self.process = self.node = None
        self.serving = False

    def supervise(self) -> None:
        """Start a node again that says it is not alive, or did not start, as a supervisor does."""
        if self.node is not None and self.runs and not self.node.health().live:
            self.crash(power=False)
            self.start()
        elif self.failed is not None and not self.up:
            self.failed = None
            self.start()

    @property
    def runs(self) -> bool:
        return self.process is not None and not self.process.paused

    def pause(self) -> None:
        assert self.process is not None
        self.world.trace.say(self.name, "is paused")
        self.process.paused = True

    def resume(self) -> None:
        if self.process is not None and self.process.paused:
            self.world.trace.say(self.name, "goes on")
            self.world.loop.resume(self.process)

    def wipe(self) -> None:
        assert self.process is None
        self.world.trace.say(self.name, "has a new disk")
        self.disk.wipe()


class _Logging(logging.Handler):
    """The nodes' log lines, with the node that wrote them, into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.DEBUG)
        self.world = world
        self.logger = logging.getLogger("penstock")
        self.logger.handlers[:] = [self]
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get(None)
        who = process.machine if process is not None else "-"
        text = f"{record.levelname} {record.getMessage()}"
        more = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        if more:
            text += " " + " ".join(f"{k}={v}" for k, v in more.items())
        self.world.paths.log_line(record.msg)
        if record.levelno >= logging.ERROR and CUT_BACK in record.msg:
            self.world.broken.append(f"{who}: {record.getMessage()}")
        if record.levelno >= logging.CRITICAL:
            text += f"\n{record.stack_info}"
            self.world.broken.append(f"{who}: {record.getMessage()}")
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
            error = record.exc_info[1]
            of_the_world = isinstance(error, OSError | PenstockError)
            if not of_the_world or isinstance(error, InvariantBroken):
                self.world.broken.append(f"{who}: {record.getMessage()}: {error!r}")
        self.world.trace.say(who, text.replace(self.world.root + "/", ""))

    def remove(self) -> None:
        self.logger.handlers.remove(self)


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
