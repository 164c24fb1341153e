"""KEKs in HashiCorp Vault's transit engine, which wraps and unwraps without giving them away.

Where Vault is, is a setting: nothing that is read from a disk decides whom a token is sent to. A
key id becomes the last part of a path and has no letter that means anything there. By http only
this machine is asked, such as an agent of Vault; no redirection is followed.

The token is read anew for each call, so that an agent may replace it. Limits: `CALL_S_MAX` for each
step of a call, `ANSWER_BYTES_MAX` of an answer, `BATCH_MAX` keys in one call. Calls wait for the
network: never on the event loop.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import ssl
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.keys.provider import KeyUnavailable, Unwrapped, WrappedKey, check_key_id

CALL_S_MAX: Final = 10.0
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
BATCH_MAX: Final = 256
TOKEN_VARIABLE: Final = "VAULT_TOKEN"
_ERROR_SHOWN_MAX: Final = 200
_PREFIX: Final = "vault:v"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


class VaultKeys:
    name = "vault"
    is_local = False

    def __init__(
        self,
        address: str,
        *,
        mount: str = "transit",
        namespace: str = "",
        token_file: str | None = None,
        ca_location: str | None = None,
    ) -> None:
        """`KeyUnavailable` if it cannot be asked in that way."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise KeyUnavailable(
                f"penstock.encryption.vault.address cannot be {address!r}: it must be an https: URL"
            )
        if parts.scheme == "http" and parts.hostname not in _LOCAL:
            raise KeyUnavailable(
                f"penstock.encryption.vault.address cannot be {address!r}: anybody on the way "
                "could read keys; by http: only this machine can be asked"
            )
        self._host, self._port = parts.hostname, parts.port
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca_location)
            except OSError as e:
                raise KeyUnavailable(
                    f"penstock.encryption.vault.ca.location {ca_location!r} cannot be used: {e}"
                ) from None
        self._path = f"{parts.path.rstrip('/')}/v1/{mount.strip('/')}"
        self._namespace = namespace
        self._token_file = token_file
        self._at = f"Vault at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def latest_version(self, key_id: str) -> int:
        data = self._call("GET", f"keys/{check_key_id(key_id)}")
        return self._number(data, "latest_version")

    def wrap(self, key_id: str, secrets: Sequence[bytes]) -> list[WrappedKey]:
        wrapped = []
        for results in self._in_batches(
            f"encrypt/{check_key_id(key_id)}",
            [{"plaintext": base64.b64encode(secret).decode()} for secret in secrets],
        ):
            for result in results:
                if "ciphertext" not in result:
                    raise self._refused(result.get("error") or "no ciphertext")
                text = str(result["ciphertext"])
                wrapped.append(WrappedKey(key_id, self._version_of(text), text.encode()))
        return wrapped

    def unwrap(self, keys: Sequence[WrappedKey]) -> list[Unwrapped]:
        """By key ids, many in each call."""
        found: dict[int, Unwrapped] = {}
        by_id: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            by_id.setdefault(key.key_id, []).append(place)
        for key_id, places in by_id.items():
            for at in range(0, len(places), BATCH_MAX):
                some = places[at : at + BATCH_MAX]
                unwrapped = self._unwrap(key_id, [keys[place] for place in some])
                found.update(zip(some, unwrapped, strict=True))
        return [found[place] for place in range(len(keys))]

    def _unwrap(self, key_id: str, keys: list[WrappedKey]) -> list[Unwrapped]:
        inputs = [{"ciphertext": key.wrapped.decode("latin-1")} for key in keys]
        try:
            [results] = self._in_batches(f"decrypt/{check_key_id(key_id)}", inputs)
        except KeyUnavailable as e:
            return [KeyUnavailable(f"{key} cannot be had: {e}") for key in keys]
        return [self._secret(key, result) for key, result in zip(keys, results, strict=True)]

    def _secret(self, key: WrappedKey, result: dict[str, Any]) -> Unwrapped:
        try:
            return base64.b64decode(str(result["plaintext"]), validate=True)
        except (KeyError, binascii.Error):
            why = _plain(str(result.get("error") or "no plaintext"))
            return KeyUnavailable(
                f"{key} is not what {self._at} can decrypt ({why}): restore that version of the "
                "key there; nothing was changed or removed"
            )

    def new_version(self, key_id: str) -> int:
        """The first one is made by `keys`, a further one by `rotate`."""
        check_key_id(key_id)
        try:
            self.latest_version(key_id)
        except _NotFound:
            self._call("POST", f"keys/{key_id}", {"type": "aes256-gcm96"})
        else:
            self._call("POST", f"keys/{key_id}/rotate", {})
        return self.latest_version(key_id)

    # -- calls ---------------------------------------------------------------------------------

    def _in_batches(self, path: str, inputs: list[dict[str, str]]) -> list[list[dict[str, Any]]]:
        answers = []
        for at in range(0, len(inputs), BATCH_MAX):
            some = inputs[at : at + BATCH_MAX]
            data = self._call("POST", path, {"batch_input": some})
            results = data.get("batch_results")
            if not isinstance(results, list) or len(results) != len(some):
                raise self._refused("another number of results than of keys")
            answers.append([r if isinstance(r, dict) else {} for r in results])
        return answers

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"X-Vault-Token": self._token(), "X-Vault-Request": "true"}
        if self._namespace:
            headers["X-Vault-Namespace"] = self._namespace
        data = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, f"{self._path}/{path}", data, headers)
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as e:
            raise self._refused(f"{type(e).__name__}: {e}") from None
        finally:
            connection.close()
        return self._judged(answer.status, text)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=CALL_S_MAX)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=CALL_S_MAX, context=self._tls
        )

    def _judged(self, status: int, text: bytes) -> dict[str, Any]:
        if status == 404:
            raise _NotFound(f"{self._at} has no such key, or no transit engine at this mount")
        try:
            answer = json.loads(text) if text else {}
            batch = isinstance(answer.get("data"), dict) and "batch_results" in answer["data"]
        except (ValueError, AttributeError):
            raise self._refused(f"status {status}, and no JSON") from None
        # With 400 some of a batch have failed: each result says so itself.
        if status >= 300 and not (status == 400 and batch):
            errors = "; ".join(map(str, answer.get("errors") or []))
            raise self._refused(f"status {status}, {errors}")
        data: dict[str, Any] = answer.get("data") or {}
        return data

    def _token(self) -> str:
        if self._token_file:
            try:
                with open(self._token_file, encoding="utf-8") as file:
                    token = file.read().strip()
            except (OSError, UnicodeDecodeError):
                raise KeyUnavailable(
                    f"the token of Vault cannot be read from {self._token_file}"
                ) from None
        else:
            token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token.isascii() or not token.isprintable() or not token:
            raise KeyUnavailable(
                "there is no token for Vault: set penstock.encryption.vault.token.file, or "
                f"{TOKEN_VARIABLE} in the node's environment"
            )
        return token

    def _version_of(self, ciphertext: str) -> int:
        number, colon, _ = ciphertext.removeprefix(_PREFIX).partition(":")
        if not ciphertext.startswith(_PREFIX) or not colon or not number.isdecimal():
            raise self._refused("a ciphertext without a version")
        return int(number)

    def _number(self, data: dict[str, Any], name: str) -> int:
        if not isinstance(data.get(name), int):
            raise self._refused(f"no {name}")
        return int(data[name])

    def _refused(self, why: str) -> KeyUnavailable:
        return KeyUnavailable(f"{self._at} does not do it: {_plain(why)}")


class _NotFound(KeyUnavailable):
    """Vault answered 404."""


def _plain(text: str) -> str:
    """What somebody else wrote, as part of a line."""
    shown = "".join(c if c.isprintable() else " " for c in text[:_ERROR_SHOWN_MAX])
    return " ".join(shown.split())
