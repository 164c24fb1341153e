"""Tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519), judged as Kafka's broker judges them.

Duty: a token, a set of keys and a time to a `BearerToken`, or `InvalidToken`.

Invariants: no token without a signature by one of our keys is believed, and without keys none
(CVE-2026-33557, CVE-2026-110985). The algorithms are those of `ALGORITHMS`: never `none`, never one
whose key is a shared secret. Of the token's header only `alg` and `kid` are used; keys or addresses
of keys in it (`jwk`, `jku`, `x5c`, `x5u`) are as if they were not there, and a header that marks
anything as critical is refused. A token that is for somebody (`aud`) is refused where no audience
is expected, as Kafka refuses it. Errors show nothing of the token but its algorithm and `kid`.

Limits: `TOKEN_BYTES_MAX`, `HEADER_BYTES_MAX`, `SIGNATURE_BYTES_MAX`, `NAME_CHARS_MAX`; `ROLES_MAX`
groups, since to leave some out could leave out one that is denied something. One signature is
verified for each token. Any thread may call a validator.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwa import JWSAlgModel

from penstock.auth.jwks import FOR_CURVE, FOR_RSA, KID_CHARS_MAX, KeySet
from penstock.auth.oauthbearer import BearerToken, InvalidToken

ALGORITHMS: Final = frozenset(FOR_RSA).union(*FOR_CURVE.values())
HEADER_BYTES_MAX: Final = 8192
TOKEN_BYTES_MAX: Final = 65_536
SIGNATURE_BYTES_MAX: Final = 2048
NAME_CHARS_MAX: Final = 1024
ROLES_MAX: Final = 1024
CLOCK_SKEW_S: Final = 30
SECONDS_MAX: Final = 1 << 52
"""A time in milliseconds is then a number of 64 bits."""
_BLANK: Final = "".join(map(chr, range(0x21)))
"""What Java trims."""


class _Registry(jws.JWSRegistry):
    """Our algorithms, and no others."""

    max_header_length = HEADER_BYTES_MAX
    max_payload_length = TOKEN_BYTES_MAX
    max_signature_length = SIGNATURE_BYTES_MAX

    def get_alg(self, name: str) -> JWSAlgModel:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError("its algorithm is not taken")
        return self.algorithms[name]


_REGISTRY: Final = _Registry(algorithms=sorted(ALGORITHMS), strict_check_header=False)


@dataclass(frozen=True, slots=True)
class JwtRules:
    """What a token has to say; the settings `sasl.oauthbearer.*`."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    groups_claim: str | None = None
    """The claim whose groups are the principal's roles."""
    clock_skew_s: int = CLOCK_SKEW_S


class JwtValidator:
    """`keys` may be replaced at any time; without them no token is valid."""

    def __init__(self, rules: JwtRules, keys: KeySet | None = None) -> None:
        self.rules = rules
        self.keys = keys

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """Raises `InvalidToken`; `UnknownKey`, which is one, if a newer set of keys may help."""
        if (keys := self.keys) is None:
            raise InvalidToken("there are no keys to verify it with")
        claims = _verified_claims(token, keys)
        expires_s = _check_times(claims, now_ms // 1000, self.rules.clock_skew_s)
        self._check_addressees(claims)
        return BearerToken(
            _name(claims.get(self.rules.subject_claim), self.rules.subject_claim),
            expires_s * 1000,
            self._scopes(claims),
            self._roles(claims),
        )

    def _check_addressees(self, claims: dict[str, Any]) -> None:
        rules = self.rules
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise InvalidToken("its issuer is not the expected one")
        audience = claims.get("aud")
        if audience is None and not rules.audiences:
            return
        found = _texts(audience, "aud")
        if not rules.audiences:
            raise InvalidToken(
                "it is for an audience, and sasl.oauthbearer.expected.audience is not set"
            )
        if rules.audiences.isdisjoint(found):
            raise InvalidToken("its audience is not an expected one")

    def _scopes(self, claims: dict[str, Any]) -> frozenset[str]:
        name = self.rules.scope_claim
        value = claims.get(name)
        if value is None:
            return frozenset()
        if isinstance(value, str):
            return frozenset(_name(value, name).split())
        return frozenset(_names(value, name))

    def _roles(self, claims: dict[str, Any]) -> frozenset[str]:
        name = self.rules.groups_claim
        value = None if name is None else claims.get(name)
        if name is None or value is None:
            return frozenset()
        found = _names(value, name)
        if len(found) > ROLES_MAX:
            raise InvalidToken(f"its claim {name} has more than {ROLES_MAX} groups")
        return frozenset(found)


def _verified_claims(token: str, keys: KeySet) -> dict[str, Any]:
    """What the token says, once its signature is known to be by one of the keys."""
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"it has more than {TOKEN_BYTES_MAX} bytes")
    try:
        found = jws.extract_compact(token.encode(), None, _REGISTRY)
        algorithm, kid = _key_names(found.headers())
        if not jws.validate_compact(found, keys.find(algorithm, kid), registry=_REGISTRY):
            raise InvalidToken("its signature is wrong")
        claims = json.loads(found.payload, object_pairs_hook=_without_doubles)
    except (JoseError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as e:
        raise InvalidToken(f"it cannot be read ({type(e).__name__})") from None
    if not isinstance(claims, dict):
        raise InvalidToken("its claims are no object")
    return claims


def _key_names(header: object) -> tuple[str, str | None]:
    if not isinstance(header, dict) or "crit" in header or "b64" in header:
        raise InvalidToken("its header asks for what is not there")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken("its algorithm is not taken")
    if kid is not None and (not isinstance(kid, str) or len(kid) > KID_CHARS_MAX):
        raise InvalidToken("its kid is no text, or too long")
    return algorithm, kid


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _check_times(claims: dict[str, Any], now_s: int, skew_s: int) -> int:
    """When it expires, in seconds."""
    expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or issued is None:
        raise InvalidToken("it does not say when it was issued and when it expires")
    if expires < 0 or issued < 0 or expires < issued or (begins is not None and expires < begins):
        raise InvalidToken("it expires before it begins, or before 1970")
    if now_s - skew_s >= expires:
        raise InvalidToken("it has expired")
    if begins is not None and now_s + skew_s < begins:
        raise InvalidToken("it is not valid yet")
    return expires


def _seconds(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -SECONDS_MAX <= value <= SECONDS_MAX:
        raise InvalidToken(f"its claim {name} is no time")
    return int(value)


def _texts(value: object, claim: str) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InvalidToken(f"its claim {claim} is no text and no list of texts")
    return found


def _names(value: object, claim: str) -> list[str]:
    found = [_name(text, claim) for text in _texts(value, claim)]
    if len(set(found)) != len(found):
        raise InvalidToken(f"its claim {claim} has something twice")
    return found


def _name(value: object, claim: str) -> str:
    """A text that is not blank, and can be written as UTF-8."""
    name = value.strip(_BLANK) if isinstance(value, str) else ""
    try:
        name.encode()
    except UnicodeEncodeError:
        name = ""
    if not 1 <= len(name) <= NAME_CHARS_MAX:
        raise InvalidToken(f"its claim {claim} is no name of 1 to {NAME_CHARS_MAX} characters")
    return name
