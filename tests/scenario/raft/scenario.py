"""The scenario language: what happens to a small quorum, and all that follows from it.

    > nodes N [auto]            N replicas; node 1 founds, the others look for it; `auto`: they join
    > start N... | stop N...    processes come and go; a stop loses what was not flushed
    > wait MS                   let time pass; a message takes 1 ms, a flush none
    > cut A B | mend            nothing passes between A and B; everything does again
    > append N VALUE...         the leader N appends one batch; `leader`: of the latest epoch
    > add N | remove N [at M]   AddRaftVoter, RemoveRaftVoter, sent to the leader or to M
    > resign N                  as before a clean stop
    > snapshot N                N writes a snapshot and trims its log to it
    > wipe N | move N           N, which is stopped, loses its disk; gets another port
    > describe N                DescribeQuorum
    > show                      every replica in a line

Output: `+` with the time in ms and what a replica did or sent. Fetches are not shown unless they
bring something. Run with `PENSTOCK_REWRITE=1` to write the present output into the files, then
read the difference.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC
from penstock.raft.types import QuorumConfig
from penstock.wire.messages import describe_quorum
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.schema import Message
from sim.raft.checker import Checker
from sim.raft.replica import SimReplica
from sim.raft.world import World

CLUSTER_ID = "cluster"
START_MS = 1_000_000


class FixedRandom(random.Random):
    """No chance: the shortest delay, no drop, ids that count up."""

    made = 0

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 0.5

    def randbytes(self, n: int) -> bytes:
        self.made += 1
        return self.made.to_bytes(n, "big")


class FixedRng:
    """Pauses differ by node, so that elections do not cross."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id

    def uuid(self) -> bytes:
        return self.node_id.to_bytes(16, "big")

    def below(self, n: int) -> int:
        return min((self.node_id - 1) * 20, n - 1)


class ShownWorld(World):
    def __init__(self) -> None:
        super().__init__(0)
        self.random = FixedRandom()
        self.delay_ms = (1, 1)

    def message(self, source: int, target: int, message: Message) -> None:
        text = shown(message)
        if text:
            self.log(f"{source} -> {target} {text}")


def shown(message: Any) -> str:
    """A message in a few words; nothing for the beat of fetches."""
    kind = type(message).__name__
    if kind == "FetchRequest":
        return ""
    if kind == "FetchResponse":
        return _shown_fetch(message)
    if kind.startswith(("AddRaft", "RemoveRaft", "UpdateRaft")):
        if kind.endswith("Request"):
            return f"{kind} {message.voter_id}"
        return f"{kind} {ErrorCode(message.error_code).name}"
    part = message.topics[0].partitions[0] if message.topics else None
    if part is None:
        return f"{kind} {ErrorCode(message.error_code).name}"
    if kind == "VoteRequest":
        end = f"{part.last_offset}@{part.last_offset_epoch}"
        return f"{'Pre-vote' if part.pre_vote else 'Vote'} epoch {part.replica_epoch} log {end}"
    if kind == "EndQuorumEpochRequest":
        line = [c.candidate_id for c in part.preferred_candidates]
        return f"EndQuorumEpoch epoch {part.leader_epoch} to {line}"
    if kind == "BeginQuorumEpochRequest":
        return f"BeginQuorumEpoch epoch {part.leader_epoch}"
    if kind == "FetchSnapshotRequest":
        return f"FetchSnapshot {part.snapshot_id.end_offset} from {part.position}"
    if kind == "FetchSnapshotResponse":
        return f"snapshot bytes from {part.position} of {part.size}"
    said = ErrorCode(part.error_code).name
    if kind == "VoteResponse" and not part.error_code:
        said = "granted" if part.vote_granted else "not granted"
    return f"{kind.removesuffix('Response')} {said}, epoch {part.leader_epoch}"


def _shown_fetch(message: Any) -> str:
    part = message.responses[0].partitions[0] if message.responses else None
    if part is None:
        return f"Fetch {ErrorCode(message.error_code).name}"
    if part.error_code:
        return f"Fetch {ErrorCode(part.error_code).name}, epoch {part.current_leader.leader_epoch}"
    if part.diverging_epoch.epoch >= 0:
        return f"Fetch diverges at {part.diverging_epoch.end_offset}@{part.diverging_epoch.epoch}"
    if part.snapshot_id.end_offset >= 0:
        return f"Fetch needs snapshot {part.snapshot_id.end_offset}@{part.snapshot_id.epoch}"
    return f"Fetch records, high watermark {part.high_watermark}" if part.records else ""


class Scenario:
    def __init__(self) -> None:
        self.world = ShownWorld()
        self.checker = Checker()
        self.replicas: list[SimReplica] = []

    def run(self, line: str) -> Iterator[str]:
        verb, *words = line.split()
        before = len(self.world.trace)
        answer = getattr(self, f"_{verb}")(words)
        yield from (f"+ {text.strip()}" for text in self.world.trace[before:])
        yield from (f"= {text}" for text in answer or ())

    def _nodes(self, words: list[str]) -> None:
        servers = (("n1", 9092),)
        for i in range(1, int(words[0]) + 1):
            config = QuorumConfig(
                CLUSTER_ID,
                bootstrap_servers=servers if i > 1 else (),
                founder=i == 1,
                auto_join="auto" in words,
            )
            replica = SimReplica(i, config, self.world, self.checker)
            replica.rng = FixedRng(i)
            self.replicas.append(replica)
        for replica in self.replicas:
            replica.peers = self.replicas

    def _each(self, words: Sequence[str]) -> Iterator[SimReplica]:
        return (
            self._leader() if word == "leader" else self.replicas[int(word) - 1] for word in words
        )

    def _leader(self) -> SimReplica:
        """The leader of the latest epoch."""
        leaders = [r for r in self.replicas if r.quorum is not None and r.quorum.is_leader]
        return max(leaders, key=lambda r: r.quorum.epoch if r.quorum else 0)

    def _start(self, words: list[str]) -> None:
        for replica in self._each(words):
            replica.start()

    def _stop(self, words: list[str]) -> None:
        for replica in self._each(words):
            replica.crash()

    def _wait(self, words: list[str]) -> None:
        self.world.run_until(self.world.now_ms + int(words[0]))

    def _cut(self, words: list[str]) -> None:
        a, b = int(words[0]), int(words[1])
        self.world.cut |= {(a, b), (b, a)}

    def _mend(self, words: list[str]) -> None:
        self.world.cut.clear()

    def _append(self, words: list[str]) -> None:
        (replica,) = self._each(words[:1])
        assert replica.quorum is not None
        values = [word.encode() for word in words[1:]]
        appended = replica.quorum.append(values, replica.now_ms)
        replica.do(lambda _: [appended])

    def _add(self, words: list[str]) -> None:
        (replica,) = self._each(words[:1])
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=1_000,
            voter_id=replica.id,
            voter_directory_id=replica.key.directory_id,
            listeners=[Listener(name="PLAIN", host=f"n{replica.id}", port=replica.port)],
        )
        self._ask(request, words)

    def _remove(self, words: list[str]) -> None:
        (replica,) = self._each(words[:1])
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=replica.id,
            voter_directory_id=replica.key.directory_id,
        )
        self._ask(request, words)

    def _ask(self, request: Message, words: list[str]) -> None:
        (target,) = self._each(words[-1:] if "at" in words else ["leader"])
        target.serve(request, lambda response: self.world.log(shown(response)))

    def _resign(self, words: list[str]) -> None:
        for replica in self._each(words):
            replica.do(lambda q, r=replica: q.resign(r.now_ms))  # type: ignore[misc]

    def _snapshot(self, words: list[str]) -> None:
        for replica in self._each(words):
            replica.take_snapshot(trim=True)

    def _wipe(self, words: list[str]) -> None:
        for replica in self._each(words):
            replica.wipe()

    def _move(self, words: list[str]) -> None:
        for replica in self._each(words):
            replica.port += 1

    def _describe(self, words: list[str]) -> list[str]:
        (replica,) = self._each(words[:1])
        part = describe_quorum.RequestPartitionData(partition_index=0)
        topic = describe_quorum.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        found: list[Any] = []
        replica.serve(describe_quorum.DescribeQuorumRequest(topics=[topic]), found.append)
        answer = found[0].topics[0].partitions[0]
        lines = [
            f"{ErrorCode(answer.error_code).name} leader {answer.leader_id} epoch "
            f"{answer.leader_epoch} high watermark {answer.high_watermark}"
        ]
        for kind, states in (("voter", answer.current_voters), ("observer", answer.observers)):
            lines += [
                f"{kind} {s.replica_id} end {s.log_end_offset} fetched "
                f"{self._when(s.last_fetch_timestamp)} caught up "
                f"{self._when(s.last_caught_up_timestamp)}"
                for s in states
            ]
        lines += [
            f"node {n.node_id} at "
            + ", ".join(f"{e.name}://{e.host}:{e.port}" for e in n.listeners)
            for n in found[0].nodes
        ]
        return lines

    def _when(self, time_ms: int) -> str:
        return "never" if time_ms < 0 else str(time_ms - START_MS)

    def _show(self, words: list[str]) -> list[str]:
        return [
            f"{r.id} {r.quorum.role} epoch {r.quorum.epoch} leader {r.quorum.leader_id} log "
            f"{r.disk.start.offset}..{r.quorum.log_end_offset} high watermark "
            f"{r.quorum.high_watermark} voters {[k.id for k in r.quorum.voters.keys]}"
            if r.quorum is not None
            else f"{r.id} is down"
            for r in self.replicas
        ]
