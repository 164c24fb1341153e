"""Where the keys of tokens come from; without keys no token is valid."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.auth.jwks import JWKS_BYTES_MAX, KeySetError
from penstock.auth.oauthbearer import InvalidToken
from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.table import ConfigError
from penstock.node import token_keys
from penstock.node.token_keys import TokenKeys, read_keys, tls_texts
from support.certificates import authority
from unit.auth.tokens import CLAIMS, EC, NOW_MS, RSA, jwks, signed
from unit.net.served import run

TOKEN = signed(CLAIMS)
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class Endpoint:
    """An https server whose answer the test chooses."""

    def __init__(self, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}/keys"
        self.status = 200
        self.body = jwks(RSA)
        self.location = ""
        self.asked = 0
        self.raw: bytes | None = None


@contextmanager
def https(tmp_path: Path) -> Iterator[Endpoint]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked += 1
            if made.raw is not None:
                self.wfile.write(made.raw)
                return
            self.send_response(made.status)
            self.send_header("Location", made.location)
            self.end_headers()
            self.wfile.write(made.body)

        def log_message(self, *_: Any) -> None:
            pass

    identity = tmp_path / "endpoint.pem"
    identity.write_text(authority().issue("keys"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    made = Endpoint(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with https(tmp_path) as made:
        yield made


@pytest.fixture
def trust(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "ca.pem").write_text(authority().pem)
    location = str(tmp_path / "ca.pem")
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}


def config(url: str, **more: str) -> BrokerConfig:
    texts = {
        "log.dirs": "unused",
        "listeners": "A://127.0.0.1:1",
        "listener.security.protocol.map": "A:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "20",
    }
    return broker_config(texts | {name.replace("_", "."): value for name, value in more.items()})


def login_of(options: dict[str, str]) -> str:
    return f"{MODULE} required " + " ".join(f'{k}="{v}"' for k, v in options.items()) + ";"


def _is_valid(keys: TokenKeys, token: str = TOKEN) -> bool:
    try:
        return keys.validate(token, NOW_MS).principal == "ann"
    except InvalidToken:
        return False


async def becomes_valid(keys: TokenKeys, token: str = TOKEN) -> None:
    async with asyncio.timeout(20):
        while not _is_valid(keys, token):
            await asyncio.sleep(0.01)


def test_keys_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(RSA, EC))
    assert len(read_keys(path.as_uri(), {})) == 2


def test_keys_by_https_are_those_of_a_trusted_host(
    endpoint: Endpoint, trust: dict[str, str]
) -> None:
    assert len(read_keys(endpoint.url, trust)) == 1
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        read_keys(endpoint.url, {})  # the machine does not trust it
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        read_keys(endpoint.url.replace("127.0.0.1", "localhost"), trust)


def test_a_redirection_is_not_followed(
    endpoint: Endpoint, trust: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(RSA))
    endpoint.body = b""
    for status in (301, 302, 303, 307, 308):
        for location in (endpoint.url, path.as_uri(), "http://127.0.0.1:1/"):
            endpoint.status, endpoint.location = status, location
            with pytest.raises(OSError, match=str(status)):
                read_keys(endpoint.url, trust)
    assert endpoint.asked == 15


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b"", OSError),
        (500, jwks(RSA), OSError),
        (200, b"", KeySetError),
        (200, b'{"keys": []}', KeySetError),
        (200, bytes(JWKS_BYTES_MAX + 1), KeySetError),
        (200, bytes(30_000_000), KeySetError),
    ],
)
def test_what_is_no_key_set_is_refused(
    endpoint: Endpoint, trust: dict[str, str], status: int, body: bytes, error: type[Exception]
) -> None:
    endpoint.status, endpoint.body = status, body
    with pytest.raises(error):
        read_keys(endpoint.url, trust)


def test_an_answer_has_a_deadline(
    endpoint: Endpoint, trust: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 1.0, 2.0])
    monkeypatch.setattr(token_keys.time, "monotonic", lambda: next(times, 3.0))
    monkeypatch.setattr(token_keys, "FETCH_S_MAX", 0.5)
    with pytest.raises(TimeoutError):
        read_keys(endpoint.url, trust)


def test_trust_for_https_is_in_the_login_of_a_listener(trust: dict[str, str]) -> None:
    login = {"listener_name_a_oauthbearer_sasl_jaas_config": login_of(trust)}
    assert tls_texts(config("https://h/", **login)) == trust
    assert tls_texts(config("https://h/")) == {}
    for text in (login_of({"ssl.truststore.location": "a.jks"}), "nonsense"):
        with pytest.raises(ConfigError, match="oauthbearer"):
            tls_texts(config("https://h/", listener_name_a_oauthbearer_sasl_jaas_config=text))


def test_without_keys_no_token_is_valid_until_there_are_some(
    endpoint: Endpoint, trust: dict[str, str]
) -> None:
    async def test() -> None:
        login = login_of(trust)
        keys = TokenKeys(config(endpoint.url, listener_name_a_oauthbearer_sasl_jaas_config=login))
        with pytest.raises(InvalidToken):
            keys.validate(TOKEN, NOW_MS)
        endpoint.status = 500
        keys.start()
        try:
            await _asked(endpoint, 2)
            with pytest.raises(InvalidToken):
                keys.validate(TOKEN, NOW_MS)
            endpoint.raw = b"this is not HTTP\r\n\r\n"  # nor does that end the reading
            await _asked(endpoint, endpoint.asked + 2)
            endpoint.raw, endpoint.status = None, 200
            await becomes_valid(keys)
        finally:
            keys.stop()

    run(test)


def test_keys_stay_while_newer_ones_cannot_be_had(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "keys.json"
        path.write_bytes(jwks(RSA))
        url = path.as_uri()
        keys = TokenKeys(config(url, sasl_oauthbearer_jwks_endpoint_refresh_ms="10"))
        keys.start()
        try:
            await becomes_valid(keys)
            path.unlink()
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                keys.validate(TOKEN, NOW_MS)
                await asyncio.sleep(0.01)
            path.write_bytes(jwks(EC))  # and what was taken away is gone
            async with asyncio.timeout(20):
                while _is_valid(keys):
                    await asyncio.sleep(0.01)
        finally:
            keys.stop()

    run(test)


def test_an_unknown_key_has_them_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(token_keys, "EARLY_S_MIN", 0.02)
        path = tmp_path / "keys.json"
        path.write_bytes(jwks(EC))
        keys = TokenKeys(config(path.as_uri()))  # else once in an hour
        keys.start()
        try:
            await becomes_valid(keys, signed(CLAIMS, EC, "ES256"))
            path.write_bytes(jwks(RSA))
            await becomes_valid(keys)
        finally:
            keys.stop()

    run(test)


async def _asked(endpoint: Endpoint, times: int) -> None:
    async with asyncio.timeout(20):
        while endpoint.asked < times:
            await asyncio.sleep(0.01)
