"""Which quota applies to whom, and the bucket that counts what they use.

A quota is set for an entity: a user, a client id, both, or an address; each may be a name or the
default for all names without a quota of their own. `Table` has the quotas of one kind and their
buckets, `ClientQuotas` one table for each kind. The entity that matches best decides who shares a
bucket: a quota of a user is shared by all client ids of the user, one of a user and a client id is
not. A default gives its bound to each name, and each name has a bucket of its own.

Invariants:
* A change applies at once, also to buckets that exist; what has been used stays counted while there
  is any quota of the kind.
* No quota of a kind: its table is not `active`, and nobody needs to look further.
* A bucket is dropped only when it is idle: then a new one behaves in the same way.

Where this differs from Kafka: an empty client id is a name like any other (in Kafka it is bound by
no quota of client ids, so it would be a way around them); what was used before there was a quota
does not count.

Who had to wait is counted by user, and by the client id or address that the quota names: not by
what clients call themselves, of which there is no end.

Limits: `BUCKETS_MAX` buckets in a table for names that only a default matches, whatever names
clients think up. Beyond it, further names share one bucket for each default that matches them,
until others are idle: they are bound together, and use no memory. Entities that have a quota by
name always have their bucket. A name is kept up to `NAME_CHARS_MAX`; a longer one by a digest.
`THROTTLES_SHOWN_MAX` users and entities are counted each by itself, further ones together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from penstock.auth.quota_windows import Bucket, SampledRate, TokenBucket, Windows

BUCKETS_MAX = 10_000
FOUND_MAX = 10_000
"""Pairs of user and client id whose bucket is known without a search."""
NAME_CHARS_MAX: Final = 255
THROTTLES_SHOWN_MAX = 100
"""For each kind of quota."""
OTHERS: Final = ("<others>", "<others>")
SWEEPS: Final = 40
SWEPT_BUCKETS: Final = 256
"""So many are looked at, so often in the time after which one can be idle: all of them."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

NS_PER_PERCENT: Final = 10_000_000
"""Of a second: 100 % are one thread."""


class Default(Enum):
    """Stands for every name that has no quota of its own."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT

Part: TypeAlias = str | Default | None
"""Of an entity: a name, the default, or none if the quota is not by this."""
Entity: TypeAlias = tuple[Part, Part]
"""User, and client id or address. As the key of a bucket: None for a part that shares it."""

B = TypeVar("B", bound=Bucket)


class Throttles:
    """How often somebody had to wait, and for how long together."""

    __slots__ = ("count", "ms")

    def __init__(self) -> None:
        self.count = 0
        self.ms = 0


class Match(NamedTuple):
    """The quota that applies to a user and a client id."""

    entity: Entity
    key: Entity
    """Of the bucket: who has the same one shares the quota."""
    bound: float


def candidates(user: Part, name: Part) -> tuple[tuple[Entity, Entity], ...]:
    """Every entity that matches, best first, each with the key of the bucket that it means."""
    both, of_user, of_name = (user, name), (user, None), (None, name)
    return (
        (both, both),
        ((user, DEFAULT), both),
        (of_user, of_user),
        ((DEFAULT, name), both),
        ((DEFAULT, DEFAULT), both),
        ((DEFAULT, None), of_user),
        (of_name, of_name),
        ((None, DEFAULT), of_name),
    )


class Table(Generic[B]):
    """The quotas of one kind, and the buckets of those who are bound by them."""

    __slots__ = (
        "_bounds",
        "_buckets",
        "_found",
        "_made",
        "_swept_ms",
        "_to_sweep",
        "active",
        "throttles",
        "windows",
    )

    def __init__(self, windows: Windows, made: Callable[[Windows, float], B]) -> None:
        self.active = False
        """Whether there is any quota of this kind."""
        self.windows = windows
        self.throttles: dict[tuple[str, str], Throttles] = {}
        """By user, and by the client id or address of the quota; empty where it is not by that."""
        self._made = made
        self._bounds: dict[Entity, float] = {}
        self._buckets: dict[Entity, B] = {}
        self._found: dict[tuple[str | None, str], B | None] = {}
        self._swept_ms = 0
        self._to_sweep: list[Entity] = []

    def alter(self, entity: Entity, bound: float | None) -> None:
        """Set a quota; None takes it away."""
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound
        self._found.clear()
        self.active = bool(self._bounds)
        if not self.active:
            self._buckets.clear()

    def resolve(self, user: str | None, name: str) -> Match | None:
        """The quota that applies, without a bucket; None if there is none."""
        bounds = self._bounds
        for entity, key in candidates(user, name):
            bound = bounds.get(entity)
            if bound is not None:
                return Match(entity, key, bound)
        return None

    def find(self, user: str | None, name: str, now_ms: int) -> B | None:
        """The bucket of a user and a client id (or of an address), with its bound of now."""
        pair = (user, name)
        if pair in self._found:
            return self._found[pair]
        match = self.resolve(user, name)
        bucket = None if match is None else self._bucket(match, now_ms)
        is_own = match is None or bucket is self._buckets.get(match.key)
        if is_own and len(name) <= NAME_CHARS_MAX and len(user or "") <= NAME_CHARS_MAX:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[pair] = bucket
        return bucket

    def _bucket(self, match: Match, now_ms: int) -> B:
        key = match.key
        is_named = DEFAULT not in match.entity
        if not is_named:
            key = _kept(key[0]), _kept(key[1])
        bucket = self._buckets.get(key)
        if bucket is None:
            self._sweep(now_ms)
            if not is_named and len(self._buckets) >= BUCKETS_MAX:
                key = match.entity
                bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = self._made(self.windows, match.bound)
        bucket.bound = match.bound
        bucket.shown = _shown(key[0]), _shown(match.entity[1])
        return bucket

    def _sweep(self, now_ms: int) -> None:
        """Drop what is idle, or bound by no quota any more: some of all, so that nobody waits for
        it; seldom enough for what was found to be of use.
        """
        if now_ms - self._swept_ms < self.windows.expiry_ms // SWEEPS:
            return
        self._swept_ms = now_ms
        to_sweep = self._to_sweep or list(self._buckets)
        self._to_sweep = to_sweep[SWEPT_BUCKETS:]
        for key in to_sweep[:SWEPT_BUCKETS]:
            bucket = self._buckets.get(key)
            bound = self._bound_of(key)
            if bucket is None:
                continue
            if bound is not None:
                bucket.bound = bound
                if not bucket.is_idle(now_ms):
                    continue
            del self._buckets[key]
            self._found.clear()

    def _bound_of(self, key: Entity) -> float | None:
        """The bound of a bucket: of quotas that mean buckets of this form, the best."""
        form = key[0] is None, key[1] is None
        for entity, _ in candidates(*key):
            if (entity[0] is None, entity[1] is None) == form and entity in self._bounds:
                return self._bounds[entity]
        return None

    def throttle(self, bucket: B | None, ms: int, now_ms: int) -> int:
        """Note that those who share the bucket have to wait; returns `ms`."""
        if bucket is not None and ms:
            throttles = self.throttles
            key = bucket.shown
            if key not in throttles and len(throttles) >= THROTTLES_SHOWN_MAX:
                key = OTHERS
            found = throttles.get(key)
            if found is None:
                found = throttles[key] = Throttles()
            found.count += 1
            found.ms += ms
            bucket.throttled_until_ms = now_ms + ms
        return ms

    def waiting(self, now_ms: int) -> int:
        """How many buckets keep somebody waiting."""
        return sum(bucket.throttled_until_ms > now_ms for bucket in self._buckets.values())

    def __len__(self) -> int:
        """How many buckets there are."""
        return len(self._buckets)


class ClientQuotas:
    """A table for each kind of quota. `active` is whether requests have to be counted for any."""

    __slots__ = ("_tables", "active", "connections", "fetch", "mutations", "produce", "request")

    def __init__(
        self, windows: Windows | None = None, controller_windows: Windows | None = None
    ) -> None:
        """`controller_windows`: those of `controller.quota.window.*`."""
        windows = windows or Windows()
        self.produce = Table(windows, SampledRate)
        self.fetch = Table(windows, SampledRate)
        self.request = Table(windows, SampledRate)
        """In nanoseconds per second."""
        self.mutations = Table(controller_windows or Windows(), TokenBucket)
        self.connections = Table(windows, SampledRate)
        """By address."""
        self.active = False
        self._tables: Mapping[str, Table[SampledRate] | Table[TokenBucket]] = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.mutations,
            CONNECTION_CREATION_RATE: self.connections,
        }

    def alter(self, entity: Mapping[str, str | None], key: str, value: float | None) -> None:
        """Apply a change of the metadata: the entity as Kafka writes it (None: the default), the
        key of the quota and its value (None: no quota any more). Other keys are left alone.
        """
        table = self._tables.get(key)
        by_address = IP in entity
        if table is None or by_address != (table is self.connections):
            return
        if value is not None and key == REQUEST_PERCENTAGE:
            value *= NS_PER_PERCENT
        if by_address:
            value = None if value is None else float(int(value))  # as Kafka takes it
            name = entity[IP]
            table.alter((None, DEFAULT if name is None else address(name)), value)
        else:
            table.alter((_part(entity, USER), _part(entity, CLIENT_ID)), value)
        self.active = self.produce.active or self.fetch.active or self.request.active

    def tables(self) -> Iterator[tuple[str, Table[SampledRate] | Table[TokenBucket]]]:
        """Each with the key of its quotas."""
        yield from self._tables.items()


def _part(entity: Mapping[str, str | None], kind: str) -> Part:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT if name is None else name


def _shown(part: Part) -> str:
    return part.value if isinstance(part, Default) else part or ""


def address(text: str) -> str:
    """An address in one form, however it was written; a host name as it is: it matches none."""
    try:
        parsed = ip_address(text)
    except ValueError:
        return text
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


def _kept(part: Part) -> Part:
    """A name that a client made up, in a bounded form."""
    if not isinstance(part, str) or len(part) <= NAME_CHARS_MAX:
        return part
    return f"sha256:{sha256(part.encode(errors='surrogatepass')).hexdigest()}"
