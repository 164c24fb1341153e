"""How a node with an empty metadata log finds its cluster, or founds one.

`controller.quorum.voters` names the first voters. The one with the lowest id is the founder: it
asks every other of them whether it knows a cluster (a pre-vote request; its answer has the epoch).
When all have answered and none does, it founds one of itself alone, with a random cluster id; when
one does, it joins that. All others learn the cluster's id from those listed, or from
`controller.quorum.bootstrap.servers`, and join. Without either setting a node is a cluster of its
own.

A node whose metadata log has records needs none of this: the log has the voters. A founder that
died between its decision and its first record decides again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from penstock.base.clock import Rng
from penstock.base.ids import METADATA_TOPIC, uuid_text
from penstock.config.broker_config import BrokerConfig
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError
from penstock.peers.peers import Channel, Peers
from penstock.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.messages.vote import (
    RequestPartitionData,
    RequestTopicData,
    VoteRequest,
    VoteResponse,
)

log = logging.getLogger("penstock.node")

ASK_TIMEOUT_S = 1.0
ASK_PAUSE_S = 0.1
LOG_AGAIN_S = 10.0


class Formed(NamedTuple):
    cluster_id: str
    founder: bool


class Formation:
    def __init__(self, config: BrokerConfig, peers: Peers, rng: Rng) -> None:
        self._config = config
        self._peers = peers
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._logged = ""
        self._log_again_s = 0.0
        self.waits_for = ""
        """What the node waits for; empty if nothing."""

    @property
    def others(self) -> list[Address]:
        """Where a cluster may be known, apart from this node."""
        servers = [self._at(*server) for server in self._config.bootstrap_servers]
        return list(dict.fromkeys([*self._listed(), *servers]))

    def _listed(self) -> list[Address]:
        voters = self._config.first_voters
        return [self._at(v.host, v.port) for v in voters if v.id != self._config.node_id]

    def _at(self, host: str, port: int) -> Address:
        return Address(host, port, self._config.quorum_listener)

    @property
    def is_founder(self) -> bool:
        ids = [voter.id for voter in self._config.first_voters]
        return bool(ids) and self._config.node_id == min(ids)

    async def form(self, stored_cluster_id: str | None) -> Formed:
        """Found a cluster or find one; waits as long as it takes."""
        known = self._config.penstock_cluster_id or stored_cluster_id
        if not self.others:
            return Formed(known or uuid_text(self._rng.uuid()), founder=True)
        if self.is_founder and not await self._cluster_exists():
            log.info("no other node knows of a cluster: this node founds one")
            self.waits_for = ""
            return Formed(known or uuid_text(self._rng.uuid()), founder=True)
        found = await self._learn_cluster_id()
        self.waits_for = ""
        return Formed(found, founder=False)

    # -- asking --------------------------------------------------------------------------------

    async def _cluster_exists(self) -> bool:
        """Ask every listed node until one knows of a cluster, or all have answered without."""
        listed = self._listed()
        while True:
            epochs = await asyncio.gather(*(self._epoch_at(place) for place in listed))
            if any(epoch for epoch in epochs):
                return True
            silent = [place for place, epoch in zip(listed, epochs, strict=True) if epoch is None]
            if not silent:
                return False
            self._log("waiting for an answer of", silent, "whether a cluster exists already")
            await asyncio.sleep(ASK_PAUSE_S)

    async def _epoch_at(self, place: Address) -> int | None:
        """The quorum's epoch as `place` knows it, 0 for none; None when it does not answer."""
        part = RequestPartitionData(replica_id=self._config.node_id, pre_vote=True)
        topic = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
        request = VoteRequest(topics=[topic])
        try:
            response: VoteResponse = await self._peers.send(
                place, Channel.QUORUM, request, timeout_s=ASK_TIMEOUT_S
            )
        except PeerError:
            return None
        parts = [part for topic in response.topics for part in topic.partitions]
        return parts[0].leader_epoch if parts else None

    async def _learn_cluster_id(self) -> str:
        while True:
            for place in self.others:
                cluster_id = await self._cluster_id_at(place)
                if cluster_id:
                    log.info("found a cluster", extra={"cluster": cluster_id, "at": str(place)})
                    return cluster_id
            self._log("waiting for one of", self.others, "to know of a cluster")
            await asyncio.sleep(ASK_PAUSE_S)

    async def _cluster_id_at(self, place: Address) -> str:
        try:
            response: DescribeClusterResponse = await self._peers.send(
                place, Channel.QUORUM, DescribeClusterRequest(), timeout_s=ASK_TIMEOUT_S
            )
        except PeerError:
            return ""
        return response.cluster_id

    def _log(self, what: str, places: Sequence[Address], rest: str) -> None:
        """Log once for each state, and again at intervals while it lasts."""
        sentence = f"{what} {', '.join(map(str, places))} {rest}"
        self.waits_for = sentence
        now_s = self._loop.time()
        if sentence != self._logged or now_s >= self._log_again_s:
            self._logged, self._log_again_s = sentence, now_s + LOG_AGAIN_S
            log.info("%s", sentence)
