"""Subjects of certificates, and rules that map them, to try."""

from __future__ import annotations

from random import Random

SUBJECTS = [
    "",
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=duke,OU=Java Soft,O=Sun\\, Inc.,L=Köln,ST=NRW,C=DE",
    "CN=kafka-1.example.com,OU=brokers,O=ACME",
    "1.2.840.113549.1.9.1=#160d64756b65406578616d706c65,CN=Duke",
    "UID=duke+CN=Duke,DC=example,DC=com",
    "O=ACME,CN=$1\\\\x",
    "CN=İstanbul ß ΑΣ,O=x",
    "CN=a\nb,O=x",
    "CN=a\u2028b,O=x",
    "aaa",
]

RULES = [
    "DEFAULT",
    "",
    " , ,DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L , RULE:.*/none/U,DEFAULT",
    "RULE:.*/x/",
    "RULE:a|aaa/b/",
    "RULE:(a)*/<$1>/",
    "RULE:CN=Duke|CN=Duke,.*|(?=O=)/<>/",
    "RULE:(a)|(b)|(aaa)/<$1$2>/",
    "RULE:^CN=(\\w+),.*$/$0-$1-$01-$2-\\$/",
    "RULE:^CN=(\\w+),.*$/$12/U",
    "RULE:^CN=(.)(.)(.)(.),.*/$4$3\\/$2\\\\$1/",
    "RULE:CN=(?<who>[^,]+),.*/${who}\\@x/",
    "RULE:CN=(?<who>[^,]+),.*/${nobody}/",
    "RULE:(?i)cn=(duke),.*/$1/",
    "RULE:CN=((?i:DUKE)),.*/$1/",
    "RULE:CN=\\Qkafka-1.\\E(.*?),.*/$1/",
    "RULE:CN=[\\w.\\-]+,OU=(?>\\w+),O=\\w++\\z/ok/",
    "RULE:CN=(?!Duke)([^,]+)(?=,)(?:,\\S+=.*)?\\Z/$1/",
    "RULE:.*\\/.*/slash/,RULE:CN=a.b,O=x/dot/,RULE:CN=a\\sb,O=x/space/",
    "RULE:(\\w)\\1\\1/$1/,RULE:(?<x>C)N=D.*\\k<x>=US/$1/",
    "RULE:(\\d+\\.)+.*/oid/,RULE:\\x43N=\\u0044(.*?),.*/$1/",
    "RULE:CN=D.{3},.{2,9}=\\D{1,}/n/",
    "RULE:^CN=(.*)$/$1/Lx",
    "RULE:foo",
    "RULE:a/b",
    "rule:a/b/",
    "DEFAULT DEFAULT",
    "RULE:(/x/",
    "RULE:[/x/",
    "RULE:a{/x/",
    "RULE:a{,3}/x/",
    "RULE:*/x/",
    "RULE:a**/x/",
    "RULE:[a&&b]*/x/",
    "RULE:[a[b]]*/x/",
    "RULE:\\p{Alpha}+/x/",
    "RULE:\\bCN.*/x/",
    "RULE:aaa/$/",
    "RULE:aaa/$x/",
    "RULE:aaa/$1/",
    "RULE:(?x) a a a/x/",
    "RULE:a(?i)AA/x/",
    "RULE:\\v*/x/",
    "RULE:\\y/x/",
    "RULE:(?P<n>a)+/x/",
    "RULE:()\\2/x/",
]

_ATOMS = (
    "CN=",
    "OU=",
    "(.*?)",
    "(\\w+)",
    ",",
    ".*",
    "[^,]*",
    "(?:x)?",
    "(a)|(aa)",
    "(?=.)",
    "$",
    "^",
)
_ATOMS += ("Duke", "\\/", "\\,", "|", "()", "(a|aa)", "a*?")
_REPEATED = ("a", "[A-Z]", ".", "(?:x)", "(a)", "[^=]", "(.)", "(?i:d)", "\\.")
"""Only those: a repeat of a repeat can take either side for ever."""
_REPEATS = ("?", "*", "+", "*?", "*+", "{2}", "{0,3}")
_SPOILERS = ("(", ")", "[", "(?i)", "{", "**", "]", "\\", "\\E")
_REPLACEMENTS = ("$1", "$2", "$0", "$10", "x", "\\$", "@", "\\/", "", "$3", " ", ".")


def random_rules(rng: Random) -> str:
    """Up to three; some are no rules at all. At most one `$n` beyond the groups: with two of them
    or an escaped `$` beside it, Kafka's escaping goes wrong and the connection fails."""
    rules = []
    for _ in range(rng.randrange(1, 4)):
        repeated = rng.choice(_REPEATED) + rng.choice(_REPEATS)
        pieces = rng.sample((*_ATOMS, repeated, repeated), rng.randrange(5))
        if rng.random() < 0.05:
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(_SPOILERS))
        if rng.random() < 0.6:
            pieces.append(rng.choice((".*", "(.*)", "(.*?)$")))
        pattern = "".join(pieces)
        parts = rng.sample(_REPLACEMENTS, rng.randrange(3))
        if sum("$" in part and part not in ("$0", "$1") for part in parts) > 1:
            parts = ["$1"]
        rules.append(f"RULE:{pattern}/{''.join(parts)}/{rng.choice(('', 'L', 'U'))}")
    if rng.random() < 0.4:
        rules.append(rng.choice(("DEFAULT", "", "RULE:", " DEFAULT ")))
    return rng.choice((",", ", ", " , ")).join(rules)


_OIDS = ("550403", "550406", "550407", "550408", "550409", "55040a", "55040b")
_OIDS += ("0992268993f22c640101", "0992268993f22c640119", "2a864886f70d010901", "550405", "8837")
_STRING_TAGS = (0x0C, 0x0C, 0x0C, 0x12, 0x13, 0x14, 0x16, 0x1A, 0x1B, 0x1C, 0x1E)
_LETTERS = ' ab,=+<>#;"\\é日😀\0\n\x7f\xa0@/'


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def random_name(rng: Random) -> bytes:
    """An X.501 name in DER."""
    parts = []
    for _ in range(rng.randrange(5)):
        pairs = {_random_pair(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))}
        parts.append(der(0x31, b"".join(sorted(pairs))))
    return der(0x30, b"".join(parts))


def _random_pair(rng: Random) -> bytes:
    tag = rng.choice(_STRING_TAGS)
    text = "".join(rng.choices(_LETTERS, k=rng.choice((0, 1, 2, 5, 12, 130))))
    encoding = {0x1C: "utf-32-be", 0x1E: "utf-16-be"}.get(tag, "utf-8")
    oid = der(0x06, bytes.fromhex(rng.choice(_OIDS)))
    return der(0x30, oid + der(tag, text.encode(encoding)))
