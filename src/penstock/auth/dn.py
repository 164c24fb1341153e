"""The name of a TLS client: its certificate's subject as text, and the rules that make it a user's.

The text is that of Java's `X500Principal.getName()`, since rules and ACLs were written for it: RFC
2253, most specific part first; an attribute outside that RFC, or a value that is no text, as
`OID=#<hex of its DER>`. A text that is not UTF-8 fails, where Java would write the same character
for whatever it cannot read, and give two subjects one name.

The rules are `ssl.principal.mapping.rules`, split and applied as Kafka's `SslPrincipalMapper` does:
the first rule whose pattern matches the whole name decides, DEFAULT takes it as it is. As there,
every match of the pattern within the name is replaced, so `.*` puts the replacement twice: a match
of all, and the empty one after it. What Kafka would stumble over when a client connects is refused
when the rules are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.auth.java_regex import ANY_CHARACTER, END, compile_java

_RFC_2253: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java reads the bytes
of all of them as UTF-8, and writes the others as hex."""
_ESCAPED: Final = str.maketrans({**{c: f"\\{c}" for c in ',=+<>#;"\\'}, "\0": "\\00"})
_VERSION_TAG: Final = 0xA0
_SUBJECT_PLACE: Final = 4
"""After serial number, algorithm, issuer and validity."""


def subject_name(certificate: bytes) -> str:
    """Of a certificate in DER; ValueError if it cannot be read."""
    from cryptography import x509  # a node without TLS starts sooner without it

    signed = x509.load_der_x509_certificate(certificate).tbs_certificate_bytes
    (_, fields, _), *_ = _elements(signed)
    parts = [whole for tag, _, whole in _elements(fields) if tag != _VERSION_TAG]
    return name_text(parts[_SUBJECT_PLACE])


def name_text(name: bytes) -> str:
    """Of an X.501 name in DER."""
    (_, sets, _), *_ = _elements(name)
    texts = ["+".join(_attributes(content)) for _, content, _ in _elements(sets)]
    return ",".join(reversed(texts))


def _attributes(content: bytes) -> Iterator[str]:
    for _, pair, _ in _elements(content):
        (_, oid, _), (tag, value, whole) = _elements(pair)
        number = _oid_text(oid)
        keyword = _RFC_2253.get(number)
        if keyword is None or tag not in _TEXT_TAGS:
            yield f"{keyword or number}=#{whole.hex()}"
        else:
            yield f"{keyword}={_value_text(value)}"


def _value_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise ValueError("the certificate's subject has a text that is not UTF-8") from None
    middle = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(middle)
    return "\\ " * before + middle.translate(_ESCAPED) + "\\ " * after


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content and all bytes of each element of DER that a parser has accepted."""
    at = 0
    while at < len(data):
        size, begin = data[at + 1], at + 2
        if size & 0x80:
            begin += size & 0x7F
            size = int.from_bytes(data[at + 2 : begin], "big")
        yield data[at], data[begin : begin + size], data[at : begin + size]
        at = begin + size


def _oid_text(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


_ONE_RULE: Final = (
    rf"(DEFAULT)|RULE:((?:\\{ANY_CHARACTER}|[^\\/])*)/((?:\\{ANY_CHARACTER}|[^\\/])*)/([LU]?)"
    rf"{ANY_CHARACTER}*?|({ANY_CHARACTER}*?)"
)
_SPLITTER: Final = re.compile(rf"\s*({_ONE_RULE})\s*(,\s*|{END})", re.ASCII)
_RULE: Final = re.compile(_ONE_RULE, re.ASCII)
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's `trim` takes away."""

_Part: TypeAlias = str | int
"""Of a replacement: text, or the number of a group."""


class _MappingRule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: tuple[_Part, ...]
    change: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return self.change("".join(self._replaced(name)))

    def _replaced(self, name: str) -> Iterator[str]:
        """As Java's `replaceAll`: after an empty match it goes on one character later."""
        done = at = 0
        while at <= len(name) and (found := self.pattern.search(name, at)):
            yield name[done : found.start()]
            for part in self.replacement:
                yield part if isinstance(part, str) else found[part] or ""
            done = found.end()
            at = done + (done == found.start())
        yield name[done:]


class PrincipalMapper:
    """The rules of `ssl.principal.mapping.rules`; ValueError, with a sentence, for bad ones."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        parsed = map(_rule, (found[1] for found in _SPLITTER.finditer(rules.strip(_TRIMMED))))
        self._rules = [rule for rule in parsed if rule is not None]

    def name(self, subject: str) -> str | None:
        """The user's name, or None if no rule applies: then the connection has to fail."""
        for rule in self._rules:
            found = subject if isinstance(rule, str) else rule.apply(subject)
            if found is not None:
                return found
        return None


def _rule(text: str) -> _MappingRule | str | None:
    """A rule, "DEFAULT", or None for an empty one."""
    found = _RULE.match(text)
    if found is None or found.end() != len(text):
        raise ValueError(
            f"the mapping rules have {text!r}: write DEFAULT or RULE:pattern/replacement/, "
            "and L or U behind it for lower or upper case"
        )
    default, pattern, replacement, case, _ = found.groups()
    if default is not None:
        return "DEFAULT"
    if pattern is None:
        return None
    compiled = compile_java(pattern)
    change = {"L": str.lower, "U": str.upper}.get(case, str)
    return _MappingRule(compiled, tuple(_replacement(replacement, compiled)), change)


_GROUP_NAME: Final = re.compile(r"\$\{([a-zA-Z][a-zA-Z0-9]*)\}")


def _replacement(text: str, pattern: re.Pattern[str]) -> Iterator[_Part]:
    """`$n` is a group, with as many digits as make the number of one; none is literal."""
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            yield text[at + 1]  # the pattern of rules has a character after each backslash
            at += 2
        elif character != "$":
            yield character
            at += 1
        elif named := _GROUP_NAME.match(text, at):
            if named[1] not in pattern.groupindex:
                raise ValueError(f"the replacement {text!r} names a group that the pattern has not")
            yield pattern.groupindex[named[1]]
            at = named.end()
        elif text[at + 1 : at + 2] in tuple("0123456789"):
            end = at + 2
            while text[end : end + 1] in tuple("0123456789") and (
                int(text[at + 1 : end + 1]) <= pattern.groups
            ):
                end += 1
            number = int(text[at + 1 : end])
            if number and not pattern.groups:
                raise ValueError(f"the replacement {text!r} is for a pattern with groups in ()")
            yield number if number <= pattern.groups else text[at:end]
            at = end
        else:
            raise ValueError(f"the replacement {text!r} has a $ without a number: write \\$")
