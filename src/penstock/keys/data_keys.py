"""Data keys: made ahead for new segments, and unwrapped for those that exist.

`take` gives a new one at once, from a stock for each key id that a thread fills again; `secret_of`
gives one that was stored, from memory. A provider that is local is asked in place. Any other is
asked by the thread alone: where memory has nothing, the caller is refused (`KeyUnavailable`), the
thread asks, and the caller finds it at its next try. So nobody on the event loop waits for a
provider.

The stock grows with what is taken from it. Limits: `STOCK_MAX` keys per id, `SECRETS_MAX` unwrapped
ones (those used longest ago go first: segments that are open hold theirs), one thread, a pause of
`RETRY_S` after a failure. Methods of the event loop's thread, but for `make`, `fill`, `wrap`,
`unwrap_all`, `prefetch` and `latest_version`, which wait and are for threads.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final, NamedTuple

from penstock.keys.provider import (
    SECRET_BYTES,
    KeyProvider,
    KeyUnavailable,
    Unwrapped,
    WrappedKey,
)

log = logging.getLogger("penstock.keys")

STOCK_MIN: Final = 16
STOCK_MAX: Final = 1_024
SECRETS_MAX: Final = 100_000
RETRY_S: Final = 1.0


class DataKey(NamedTuple):
    """A key that encrypts data, with its wrapped form."""

    secret: bytes
    wrapped: WrappedKey

    def __repr__(self) -> str:
        return f"<data key of {self.wrapped}>"


class _Stock:
    """The keys that wait to be used, of one key id."""

    __slots__ = ("filling", "keys", "not_before_s", "size", "why")

    def __init__(self) -> None:
        self.keys: list[DataKey] = []
        self.size = STOCK_MIN
        self.filling = False
        self.not_before_s = 0.0
        self.why = "the provider is being asked for one"


class DataKeys:
    """Without a provider nothing can be encrypted, and what is encrypted cannot be read."""

    def __init__(self, provider: KeyProvider | None = None) -> None:
        self.provider = provider
        self.failures = 0
        """Calls of the provider that failed."""
        self._stocks: dict[str, _Stock] = {}
        self._secrets: OrderedDict[WrappedKey, bytes] = OrderedDict()
        self._wanted: dict[WrappedKey, None] = {}
        self._refused: dict[WrappedKey, KeyUnavailable] = {}
        self._asking = False
        self._not_before_s = 0.0
        self._lock = Lock()
        """Of all the above, which the thread changes, too."""
        self._thread: ThreadPoolExecutor | None = None

    @property
    def spare(self) -> int:
        """Data keys that wait to be used."""
        return sum(len(stock.keys) for stock in self._stocks.values())

    def _provider(self) -> KeyProvider:
        if self.provider is None:
            raise KeyUnavailable(
                "this node has no keys: set penstock.encryption.provider, as on the other nodes"
            )
        return self.provider

    # -- new keys ------------------------------------------------------------------------------

    def want(self, key_id: str) -> None:
        """A key of this id will be taken soon."""
        if self.provider is not None and not self.provider.is_local:
            with self._lock:
                self._fill(key_id, self._stocks.setdefault(key_id, _Stock()))

    def take(self, key_id: str) -> DataKey:
        """A key for a new segment; `KeyUnavailable` if there is none now."""
        if self._provider().is_local:
            return self.make(key_id, 1)[0]
        with self._lock:
            stock = self._stocks.setdefault(key_id, _Stock())
            key = stock.keys.pop() if stock.keys else None
            if key is None:
                stock.size = min(2 * stock.size, STOCK_MAX)
            self._fill(key_id, stock)
            if key is None:
                raise KeyUnavailable(f"there is no data key of {key_id!r} yet: {stock.why}")
        return key

    def make(self, key_id: str, count: int) -> list[DataKey]:
        """New keys, from the provider itself."""
        secrets = [os.urandom(SECRET_BYTES) for _ in range(count)]
        try:
            wrapped = self._provider().wrap(key_id, secrets)
        except KeyUnavailable:
            self.failures += 1
            raise
        with self._lock:
            for key, secret in zip(wrapped, secrets, strict=True):
                self._remember(key, secret)
        return [DataKey(secret, key) for secret, key in zip(secrets, wrapped, strict=True)]

    def wrap(self, key_id: str, secret: bytes) -> WrappedKey:
        """A data key that exists, wrapped by the latest version; by the provider itself."""
        [key] = self._provider().wrap(key_id, [secret])
        with self._lock:
            self._remember(key, secret)
        return key

    def fill(self, key_id: str) -> None:
        """Have some ready; waits for the provider."""
        keys = self.make(key_id, STOCK_MIN)
        with self._lock:
            self._stocks.setdefault(key_id, _Stock()).keys += keys

    def _fill(self, key_id: str, stock: _Stock) -> None:
        """Have the thread fill a stock that is less than half full. Under the lock."""
        is_low = 2 * len(stock.keys) < stock.size
        if is_low and not stock.filling and time.monotonic() >= stock.not_before_s:
            stock.filling = True
            self._run(lambda: self._fill_now(key_id, stock))

    def _fill_now(self, key_id: str, stock: _Stock) -> None:
        try:
            keys = self.make(key_id, stock.size - len(stock.keys))
        except KeyUnavailable as e:
            log.warning("data keys cannot be made", extra={"key_id": key_id, "reason": str(e)})
            with self._lock:
                stock.why, stock.filling = str(e), False
                stock.not_before_s = time.monotonic() + RETRY_S
            return
        with self._lock:
            stock.keys += keys
            stock.filling = False

    def use_latest(self, key_id: str, version: int) -> None:
        """Throw away what was made ahead by versions before this one."""
        with self._lock:
            stock = self._stocks.get(key_id)
            if stock is not None:
                stock.keys = [key for key in stock.keys if key.wrapped.version >= version]

    def latest_version(self, key_id: str) -> int:
        return self._provider().latest_version(key_id)

    # -- keys that are stored ------------------------------------------------------------------

    def secret_of(self, key: WrappedKey) -> bytes:
        """A data key that was stored; `KeyUnavailable` if it cannot be had, or not yet."""
        with self._lock:
            secret = self._secrets.get(key)
            if secret is not None:
                self._secrets.move_to_end(key)
                return secret
        if self._provider().is_local:
            [found] = self.unwrap_all([key])
            if isinstance(found, KeyUnavailable):
                raise found
            return found
        with self._lock:
            self._wanted[key] = None
            self._ask()
            raise self._refused.get(key) or KeyUnavailable(
                f"{key} is being asked for: try again in a moment"
            )

    def unwrap_all(self, keys: Sequence[WrappedKey]) -> list[Unwrapped]:
        """Each of them, or why it cannot be had, from the provider itself."""
        found = self._provider().unwrap(keys)
        with self._lock:
            for key, secret in zip(keys, found, strict=True):
                if isinstance(secret, KeyUnavailable):
                    self.failures += 1
                    self._refused[key] = secret
                else:
                    self._remember(key, secret)
        return found

    def prefetch(self, keys: Iterable[WrappedKey]) -> None:
        """Have them in memory, as far as they can be had, for logs that will be opened."""
        if self.provider is None or self.provider.is_local:
            return
        missing = [key for key in dict.fromkeys(keys) if key not in self._secrets]
        if missing:
            self.unwrap_all(missing)

    def _remember(self, key: WrappedKey, secret: bytes) -> None:
        self._refused.pop(key, None)
        self._wanted.pop(key, None)
        self._secrets[key] = secret
        if len(self._secrets) > SECRETS_MAX:
            self._secrets.popitem(last=False)

    def _ask(self) -> None:
        """Have the thread ask for what is wanted. Under the lock."""
        if not self._asking and time.monotonic() >= self._not_before_s:
            self._asking = True
            self._run(self._ask_now)

    def _ask_now(self) -> None:
        with self._lock:
            keys, self._wanted = list(self._wanted), {}
        found = self.unwrap_all(keys)
        with self._lock:
            self._asking = False
            if any(isinstance(secret, KeyUnavailable) for secret in found):
                self._not_before_s = time.monotonic() + RETRY_S

    # -- the thread ----------------------------------------------------------------------------

    def _run(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="data-keys")
        self._thread.submit(work)

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
