"""Our quotas against Kafka's own managers: the same steps, the same times to wait; one JVM.

The managers are driven with Kafka's real `Rate`, `SampledStat`, `TokenBucket` and `QuotaUtils`.
Both sides get the same words (`Quotas.java` says what they mean), and answer with words.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest

from penstock.auth.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotas,
    Part,
    Table,
)
from penstock.auth.quota_windows import SampledRate, Windows
from penstock.auth.throttling import Throttling
from support.reference import java_command

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("auth-java")]

PROGRAM = Path(__file__).parent / "java" / "Quotas.java"

START_MS = 1_700_000_000_000
SEEDS = 60
STEPS = 120
UNLIMITED = float(2**63 - 1)
USERS = ("alice", "bob:%2F")
CLIENTS = ("c1", "c2", "c3")
KEYS = {
    "PRODUCE": PRODUCER_BYTE_RATE,
    "FETCH": CONSUMER_BYTE_RATE,
    "REQUEST": REQUEST_PERCENTAGE,
    "CONTROLLER_MUTATION": CONTROLLER_MUTATION_RATE,
}


class Ours:
    """What the program in Java does, done here."""

    def __init__(self, kind: str, samples: int, seconds: int) -> None:
        windows = Windows(samples, seconds)
        self.kind = kind
        self.quotas = ClientQuotas(windows, windows)
        self.door = Throttling(self.quotas)

    def step(self, words: list[str]) -> str | None:
        if self.kind == "CONNECTION":
            return self._connection(words)
        verb, user, client, *rest = words
        if verb in ("set", "del"):
            entity = {
                part: None if name == "*" else name
                for part, name in ((USER, user), (CLIENT_ID, client))
                if name != "-"
            }
            self.quotas.alter(entity, KEYS[self.kind], float(rest[0]) if rest else None)
            return None
        if verb == "of":
            return self._bucket_of(user, client)
        if verb == "max":
            return str(self.door.fetch_bytes_max(user, client, START_MS))
        amount, now_ms = int(rest[0]), int(rest[1])
        if verb in ("strict", "permissive"):
            mutations = self.door.mutations(user, client, strict=verb == "strict")
            refused = "" if mutations.admit(amount, now_ms) else "refused:"
            return f"{refused}{mutations.throttle_ms(now_ms)}"
        return self._recorded(verb, user, client, amount, now_ms)

    def _recorded(self, verb: str, user: str, client: str, amount: int, now_ms: int) -> str | None:
        if verb == "later":
            self.door.sent(user, client, amount, now_ms)
            return None
        if self.kind == "REQUEST":
            return str(self.door.request_time(user, client, amount, now_ms))
        if self.kind == "PRODUCE":
            return str(self.door.produced(user, client, amount, 0, now_ms, acks=True))
        # Where Kafka's door takes bytes back, the steps do it by themselves.
        bucket = self.quotas.fetch.find(user, client, now_ms)
        if bucket is None:
            return None if verb == "unrecord" else "0"
        bucket.record(-amount if verb == "unrecord" else amount, now_ms)
        return None if verb == "unrecord" else str(bucket.throttle_ms(now_ms))

    def _bucket_of(self, user: str, client: str) -> str:
        table: Table[SampledRate] = self.quotas.produce
        match = table.resolve(user, client)
        key: tuple[Part, Part] = (None, None) if match is None else match.key
        bound = UNLIMITED if match is None else match.bound
        return f"{key[0] or ''}/{key[1] or ''}/{bound!r}"

    def _connection(self, words: list[str]) -> str | None:
        if words[0] == "set":
            ip = None if words[1] == "*" else words[1]
            self.quotas.alter({IP: ip}, CONNECTION_CREATION_RATE, float(words[2]))
            return None
        return str(self.door.connecting(words[1], int(words[2])))


def _ours(line: str) -> list[str]:
    kind, samples, seconds, *steps = line.split(" ")
    ours = Ours(kind, int(samples), int(seconds))
    answers = (ours.step(step.split(",")) for step in steps)
    return [answer for answer in answers if answer is not None]


class Java:
    """The program, which answers one line at a time."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def ask(self, lines: list[str]) -> list[list[str]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        answers = []
        for line in lines:
            stdin.write(f"{line}\n")
            stdin.flush()
            answer = stdout.readline()
            assert answer, self._errors.read_text()
            answers.append(answer.rstrip("\n").split(" "))
        return answers

    def agrees(self, lines: list[str]) -> list[list[str]]:
        answers = self.ask(lines)
        for line, expected in zip(lines, answers, strict=True):
            assert _ours(line) == expected, line
        return answers


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    errors = tmp_path_factory.mktemp("java") / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            java_command(str(PROGRAM)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            encoding="utf-8",
        )
    with process:
        try:
            yield Java(process, errors)
        finally:
            process.kill()


def _times(random: Random, sample_ms: int) -> Iterator[int]:
    now_ms = START_MS + random.randrange(sample_ms)
    while True:
        yield now_ms
        now_ms += random.choice(
            (0, 0, 1, random.randrange(50), random.randrange(sample_ms), sample_ms, sample_ms - 1)
            if random.random() < 0.97
            else (11 * sample_ms, 11 * sample_ms - 1, 12 * sample_ms, random.randrange(10**5))
        )


def _windows(random: Random) -> tuple[int, int]:
    return random.choice(((11, 1), (11, 1), (2, 1), (1, 1), (5, 3), (30, 2)))


def _bound(random: Random, kind: str) -> str:
    if kind == "REQUEST":
        return str(random.choice((0.5, 1.0, 12.5, 50.0, 200.0, random.uniform(0.1, 300))))
    if kind == "CONTROLLER_MUTATION":
        return str(random.choice((0.5, 1.0, 5.0, 10.0, random.uniform(0.1, 50))))
    return str(float(random.choice((100, 1000, 1024, random.randrange(1, 10**6)))))


def _amount(random: Random, kind: str) -> int:
    if kind == "REQUEST":
        return random.choice((0, random.randrange(10**6), random.randrange(3 * 10**8)))
    if kind == "CONTROLLER_MUTATION":
        return random.choice((0, 1, 1, random.randrange(10), random.randrange(200)))
    return random.choice((0, random.randrange(200), random.randrange(5000), 1 << 20))


def _line(kind: str, seed: int) -> str:
    """Quotas of several levels that change while they are used by several clients."""
    random = Random(f"{kind} {seed}")
    samples, seconds = _windows(random)
    everybody = [
        ("*", "-"),
        ("-", "*"),
        ("*", "*"),
        ("alice", "-"),
        ("alice", "*"),
        ("bob:%2F", "c1"),
    ]
    entities = random.sample(everybody, random.randrange(1, 5))
    if not {("*", "-"), ("-", "*"), ("*", "*")} & set(entities):
        entities.append(("-", "*"))  # what is bound by nothing counts only in Kafka
    words = [kind, str(samples), str(seconds)]
    words += [f"set,{user},{client},{_bound(random, kind)}" for user, client in entities]
    verbs = {
        "PRODUCE": ("record",),
        "FETCH": ("record", "record", "empty"),
        "REQUEST": ("record", "record", "later"),
        "CONTROLLER_MUTATION": ("strict", "strict", "permissive"),
    }[kind]
    times = _times(random, 1000 * seconds)
    for _ in range(STEPS):
        who = f"{random.choice(USERS)},{random.choice(CLIENTS)}"
        amount, now_ms, verb = _amount(random, kind), next(times), random.choice(verbs)
        if verb == "empty":
            words += [f"record,{who},{amount},{now_ms}", f"unrecord,{who},{amount},{now_ms}"]
        else:
            words.append(f"{verb},{who},{amount},{now_ms}")
        if random.random() < 0.05:
            user, client = random.choice(entities)
            words.append(f"set,{user},{client},{_bound(random, kind)}")
    return " ".join(words)


@pytest.mark.parametrize("kind", [kind for kind in KEYS if kind != "REQUEST"])
def test_times_to_wait_are_the_same_to_the_millisecond(java: Java, kind: str) -> None:
    _both_happen(java.agrees([_line(kind, seed) for seed in range(SEEDS)]))


def test_times_to_wait_for_time_are_the_same_but_for_halves(java: Java) -> None:
    """Kafka adds percentages as doubles, we add nanoseconds: half a millisecond may be a bit less
    than that in Kafka, and is rounded down.
    """
    lines = [_line("REQUEST", seed) for seed in range(SEEDS)]
    asked = java.ask(lines)
    compared = [
        (int(ours), int(kafka))
        for line, expected in zip(lines, asked, strict=True)
        for ours, kafka in zip(_ours(line), expected, strict=True)
    ]
    different = [(ours, kafka) for ours, kafka in compared if ours != kafka]
    assert all(abs(ours - kafka) == 1 for ours, kafka in different)
    assert len(different) <= len(compared) // 1000
    _both_happen(asked)


def _both_happen(answers: list[list[str]]) -> None:
    words = [word for line in answers for word in line]
    at_once = words.count("0")
    assert min(at_once, len(words) - at_once) > len(words) // 20, "too much of one kind"


def test_addresses_wait_as_long(java: Java) -> None:
    lines = []
    for seed in range(SEEDS):
        random = Random(f"connections {seed}")
        samples, seconds = _windows(random)
        words = ["CONNECTION", str(samples), str(seconds), f"set,*,{random.randrange(1, 6)}"]
        times = _times(random, 300)
        for _ in range(STEPS):
            words.append(f"connect,{random.choice(('10.0.0.1', '10.0.0.2', '::1'))},{next(times)}")
            if random.random() < 0.05:
                who = random.choice(("*", "10.0.0.1"))
                words.append(f"set,{who},{random.randrange(1, 6)}")
        lines.append(" ".join(words))
    _both_happen(java.agrees(lines))


LEVELS = ("alice,c1", "alice,*", "alice,-", "*,c1", "*,*", "*,-", "-,c1", "-,*")


def _bound_in(answer: list[str]) -> float:
    return float(answer[0].rpartition("/")[2])


def test_the_same_quota_applies_and_the_same_ones_share_it(java: Java) -> None:
    """Every set of levels, for every user and client id; and again when half of them are gone."""
    lines = []
    for present in product((False, True), repeat=len(LEVELS)):
        levels = [level for level, there in zip(LEVELS, present, strict=True) if there]
        asked = [f"of,{user},{client}" for user in USERS for client in CLIENTS[:2]]
        words = ["PRODUCE", "11", "1"]
        words += [f"set,{level},{100.0 + LEVELS.index(level)}" for level in levels] + asked
        words += [f"del,{level}" for level in levels[::2]] + asked
        lines.append(" ".join(words))
    for line, expected in zip(lines, java.ask(lines), strict=True):
        for ours, kafka in zip(_ours(line), expected, strict=True):
            # A client that nothing bounds has a bucket in Kafka, and none here.
            is_unbound = _bound_in([kafka]) == UNLIMITED
            assert ours == (f"//{UNLIMITED!r}" if is_unbound else kafka), line


def test_the_largest_fetch_is_the_same(java: Java) -> None:
    lines = [
        f"FETCH {samples} {seconds} set,*,-,{bound} max,alice,c1"
        for samples, seconds in ((11, 1), (2, 1), (5, 3), (1, 1))
        for bound in (1.0, 1000.0, 123457.0)
    ]
    for line, [kafka] in zip(lines, java.ask(lines), strict=True):
        assert _ours(line) == [str(int(float(kafka)))], line


def test_kafka_lets_an_empty_client_id_go_by_and_we_do_not(java: Java) -> None:
    lines = ["PRODUCE 11 1 set,-,*,5.0 of,alice,", "PRODUCE 11 1 set,alice,*,5.0 of,alice,"]
    assert [_bound_in(answer) for answer in java.ask(lines)] == [UNLIMITED, UNLIMITED]
    assert [_bound_in(_ours(line)) for line in lines] == [5.0, 5.0]
