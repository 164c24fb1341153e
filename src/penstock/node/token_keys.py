"""The keys by which tokens of OAUTHBEARER are verified: read from a file or by https, again and
again.

Fail closed: without keys no token is valid. Keys that were read stay while newer ones cannot be
had. A token that names an unknown key has them read anew, at most once in `EARLY_S_MIN`; it is
refused meanwhile, and its client comes again.

The certificates that are trusted for https are those of the machine, or what `ssl.` options of the
OAUTHBEARER login of a listener name (`sasl.jaas.config`), as in Kafka.

Limits: `JWKS_BYTES_MAX` of an answer, `FETCH_S_MAX` for it. No redirection is followed. The text is
read and parsed in a worker thread; all else is owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from penstock.auth.jaas import parse_jaas
from penstock.auth.jwks import JWKS_BYTES_MAX, KeySet, KeySetError, UnknownKey, parse_jwks
from penstock.auth.jwt import JwtRules, JwtValidator
from penstock.auth.oauthbearer import OAUTHBEARER, BearerToken
from penstock.config.broker_config import BrokerConfig
from penstock.config.table import ConfigError
from penstock.kafka.security import client_context, tls_of
from penstock.observe.logs import Alarm

log = logging.getLogger("penstock.node")

FETCH_S_MAX: Final = 10.0
EARLY_S_MIN: Final = 10.0
_READ_BYTES: Final = 65_536


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def read_keys(url: str, tls: Mapping[str, str]) -> KeySet:
    """In a worker thread; `OSError`, `ValueError`, `HTTPException` or `KeySetError` where there are
    none to be had. `tls`: ssl settings for https.
    """
    ends_s = time.monotonic() + FETCH_S_MAX
    handlers: list[urllib.request.BaseHandler] = [_NoRedirection()]
    if tls:
        context = client_context(tls_of(tls))
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    text = b""
    with opener.open(url, timeout=FETCH_S_MAX) as answer:
        while len(text) <= JWKS_BYTES_MAX and (part := answer.read1(_READ_BYTES)):
            text += part
            if time.monotonic() > ends_s:
                raise TimeoutError(f"it took more than {FETCH_S_MAX:g} s")
    return parse_jwks(text)


def tls_texts(config: BrokerConfig) -> dict[str, str]:
    """The ssl settings for https, from the first login that has any."""
    for listener in config.listen:
        if (text := config.jaas(listener.name, OAUTHBEARER)) is None:
            continue
        try:
            options = parse_jaas(text).options
            found = {name: value for name, value in options.items() if name.startswith("ssl.")}
            tls_of(found)
        except ValueError as e:
            raise ConfigError(
                f"listener.name.{listener.name.lower()}.oauthbearer.sasl.jaas.config cannot be "
                f"used: {e}"
            ) from None
        if found:
            return found
    return {}


class TokenKeys:
    def __init__(self, config: BrokerConfig) -> None:
        assert config.sasl_oauthbearer_jwks_endpoint_url is not None
        self._url = config.sasl_oauthbearer_jwks_endpoint_url
        self._tls = tls_texts(config)
        self._refresh_s = config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._backoff_s = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms / 1000
        self._backoff_s_max = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms / 1000
        self._validator = JwtValidator(
            JwtRules(
                issuer=config.sasl_oauthbearer_expected_issuer,
                audiences=frozenset(config.sasl_oauthbearer_expected_audience),
                subject_claim=config.sasl_oauthbearer_sub_claim_name,
                scope_claim=config.sasl_oauthbearer_scope_claim_name,
                groups_claim=config.penstock_oauthbearer_roles_claim_name or None,
                clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
            )
        )
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._alarm = Alarm(log)

    def start(self) -> None:
        self._task = self._loop.create_task(self._keep_reading())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """What a token says, or `InvalidToken`; in any thread."""
        try:
            return self._validator.validate(token, now_ms)
        except UnknownKey:
            self._loop.call_soon_threadsafe(self._wanted.set)
            raise

    async def _keep_reading(self) -> None:
        backoff_s = self._backoff_s
        while True:
            try:
                self._validator.keys = await asyncio.to_thread(read_keys, self._url, self._tls)
            except (OSError, ValueError, http.client.HTTPException, KeySetError) as e:
                self._alarm.raised(
                    "jwks", "the keys of tokens cannot be read", url=self._url, reason=str(e)
                )
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, self._backoff_s_max)
                continue
            backoff_s = self._backoff_s
            await self._wait()

    async def _wait(self) -> None:
        self._wanted.clear()
        await asyncio.sleep(min(EARLY_S_MIN, self._refresh_s))
        left_s = self._refresh_s - EARLY_S_MIN
        if left_s > 0:
            try:
                async with asyncio.timeout(left_s):
                    await self._wanted.wait()
            except TimeoutError:
                return
