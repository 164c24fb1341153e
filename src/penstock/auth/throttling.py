"""How long a client has to wait after a request: what a door asks when quotas are set.

A door counts what a request used and gets the milliseconds for which its connection is to be muted;
the answer, which names that time, goes out at once. Of two quotas that are broken the longer time
counts. Users are named by the name of their principal, as Kafka's quotas name them; times are
milliseconds of one clock that does not go back.

Nobody waits for work of the cluster: what followers and brokers ask of each other is not counted.
A request that is forwarded is throttled by the broker that the client is connected to, for the
longer of its own time and the controller's.

Limits: those of `client_quotas`.
"""

from __future__ import annotations

from typing import Final

from penstock.auth.client_quotas import ClientQuotas, Table, address
from penstock.auth.quota_windows import SampledRate

BYTES_MAX: Final = 2**31 - 1
"""What the field of a request holds: no limit."""


class Throttling:
    __slots__ = ("quotas",)

    def __init__(self, quotas: ClientQuotas) -> None:
        self.quotas = quotas

    # -- requests ------------------------------------------------------------------------------

    def produced(
        self, user: str, client_id: str, size: int, spent_ns: int, now_ms: int, *, acks: bool
    ) -> int:
        """A Produce of `size` bytes took `spent_ns`, which count only if it gets an answer."""
        produce = self.quotas.produce
        bucket, bytes_ms = _recorded(produce, user, client_id, size, now_ms)
        if acks and self.quotas.request.active:
            time_bucket, time_ms = self._time(user, client_id, spent_ns, now_ms)
            if time_ms >= bytes_ms:
                return self.quotas.request.throttle(time_bucket, time_ms, now_ms)
        return produce.throttle(bucket, bytes_ms, now_ms)

    def fetched(self, user: str, client_id: str, size: int, spent_ns: int, now_ms: int) -> int:
        """A Fetch of a consumer would be answered with `size` bytes. If it has to wait, it gets
        none of them: the answer is to be empty, and they do not count.

        A batch that is larger than the whole window allows has to wait until nothing else counts;
        then it is given, and what comes after it waits for both.
        """
        fetch = self.quotas.fetch
        time_bucket, time_ms = self._time(user, client_id, spent_ns, now_ms)
        bucket, bytes_ms = _recorded(fetch, user, client_id, size, now_ms)
        if bucket is not None:
            if bucket.total == size:
                bytes_ms = 0
            if bytes_ms or time_ms:
                bucket.record(-size, now_ms)
        if time_ms >= bytes_ms:
            return self.quotas.request.throttle(time_bucket, time_ms, now_ms)
        return fetch.throttle(bucket, bytes_ms, now_ms)

    def fetch_bytes_max(self, user: str, client_id: str, now_ms: int) -> int:
        """What the whole window allows: a larger answer would have to wait even if it were the only
        one.
        """
        fetch = self.quotas.fetch
        bucket = fetch.find(user, client_id, now_ms) if fetch.active else None
        if bucket is None:
            return BYTES_MAX
        return int(min(bucket.bound * (fetch.windows.least_ms / 1000), BYTES_MAX))

    def request_time(self, user: str, client_id: str, spent_ns: int, now_ms: int) -> int:
        """Any other request took `spent_ns` of the loop."""
        bucket, ms = self._time(user, client_id, spent_ns, now_ms)
        return self.quotas.request.throttle(bucket, ms, now_ms)

    def sent(self, user: str, client_id: str, spent_ns: int, now_ms: int) -> None:
        """Sending an answer took `spent_ns` more, for which the next request may have to wait."""
        request = self.quotas.request
        bucket = request.find(user, client_id, now_ms) if request.active else None
        if bucket is not None:
            bucket.record(spent_ns, now_ms)

    def mutations(self, user: str, client_id: str, *, strict: bool) -> Mutations:
        """For one request that creates or deletes partitions; `strict` by its version."""
        return Mutations(self.quotas, user, client_id, strict)

    def connecting(self, ip: str, now_ms: int) -> int:
        """A connection comes from `ip`. If it has to wait it is to be closed after that time, and
        does not count.
        """
        connections = self.quotas.connections
        if not connections.active:
            return 0
        bucket, ms = _recorded(connections, None, address(ip), 1, now_ms)
        if bucket is not None and ms:
            bucket.record(-1, now_ms)
        return connections.throttle(bucket, min(ms, connections.windows.sample_ms), now_ms)

    def _time(
        self, user: str, client_id: str, spent_ns: int, now_ms: int
    ) -> tuple[SampledRate | None, int]:
        """For time nobody waits longer than one sample: it is judged again after that."""
        request = self.quotas.request
        bucket, ms = _recorded(request, user, client_id, spent_ns, now_ms)
        return bucket, min(ms, request.windows.sample_ms)


class Mutations:
    """The quota of controller mutations (KIP-599), as one request meets it: one topic or more.

    Strict: what comes once the bucket is empty is refused. Else all is done, and only the time to
    wait is told.
    """

    __slots__ = ("_client_id", "_quotas", "_recorded_ms", "_strict", "_user", "_wait_ms")

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, strict: bool) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._strict = strict
        self._wait_ms = 0
        self._recorded_ms = 0

    def admit(self, partitions: int, now_ms: int) -> bool:
        """Whether so many more may be created or deleted; if not: THROTTLING_QUOTA_EXCEEDED."""
        table = self._quotas.mutations
        if not table.active:
            return True
        bucket = table.find(self._user, self._client_id, now_ms)
        if bucket is None:
            return True
        wait_ms, refused = 0, False
        if self._strict:
            wait_ms = bucket.throttle_ms(now_ms)
            refused = bucket.tokens(now_ms) < 0
        if not refused:
            bucket.take(partitions, now_ms)
            wait_ms = 0 if self._strict else bucket.throttle_ms(now_ms)
        if wait_ms:
            if not self._wait_ms:  # one request is throttled once
                table.throttle(bucket, wait_ms, now_ms)
            self._wait_ms, self._recorded_ms = wait_ms, now_ms
        return not refused

    def throttle_ms(self, now_ms: int) -> int:
        """What is left to wait: the answer may come long after the quota was broken."""
        return max(0, self._wait_ms - (now_ms - self._recorded_ms))


def _recorded(
    table: Table[SampledRate], user: str | None, name: str, amount: int, now_ms: int
) -> tuple[SampledRate | None, int]:
    if not table.active:
        return None, 0
    bucket = table.find(user, name, now_ms)
    if bucket is None:
        return None, 0
    bucket.record(amount, now_ms)
    return bucket, bucket.throttle_ms(now_ms)
