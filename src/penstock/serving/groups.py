"""Consumer groups: a request goes to the shard that keeps its group.

Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.coordinating.group_coordinator import GroupCoordinator
from penstock.coordinating.transactional_commits import TransactionalCommits
from penstock.serving.shards import ShardService
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


class GroupService(ShardService):
    def __init__(self, groups: GroupCoordinator, commits: TransactionalCommits) -> None:
        super().__init__(groups)
        self._commits = commits

    def commit_in_transaction(
        self,
        principal: str,
        request: TxnOffsetCommitRequest,
        version: int,
        client_id: str,
        client_host: str,
    ) -> Awaitable[TxnOffsetCommitResponse]:
        """Store offsets as part of a transaction, once that is verified."""
        return self._commits.commit(request, version, client_id, client_host)
