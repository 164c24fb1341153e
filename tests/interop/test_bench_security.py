"""`make bench-security` in small: the load's TLS, and each part with real servers."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.figures import OURS, Results
from bench.peers.rounds import Plan, Progress, run_rounds
from bench.peers.tls import CIPHER, RECORD_BYTES, TLS_VERSION, TlsSocket, context
from bench.security import beside, idle, locked, storms, variants
from bench.security.servers import KafkaTls, PenstockTls
from bench.security.table import page

from support import reference
from support.certificates import HOST, Authority

SECONDS = 0.1
LARGE = bytes(range(251)) * 8_000
FEW_RULES = 50


@pytest.fixture
def results() -> Results:
    return Results("this machine", SECONDS)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[socket.socket, Authority, ssl.SSLContext]]:
    """A server's socket, who has signed its certificate, and its context."""
    authority = Authority()
    (tmp_path / "server.pem").write_text(authority.issue("server"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    with socket.create_server((HOST, 0)) as sock:
        yield sock, authority, server


def connected(sock: socket.socket, authority: Authority) -> TlsSocket:
    plain = socket.create_connection(sock.getsockname(), 30)
    return TlsSocket(plain, context(authority.pem), HOST)


def test_the_load_sends_and_receives_all_of_it(
    listening: tuple[socket.socket, Authority, ssl.SSLContext],
) -> None:
    sock, authority, server = listening

    def echo() -> None:
        with server.wrap_socket(sock.accept()[0], server_side=True) as peer:
            left = len(LARGE)
            received = b""
            while left and (data := peer.recv(1 << 20)):
                received += data
                left -= len(data)
            peer.sendall(received)
            peer.recv(1)  # until the client has all of it: an end would be an event, too

    answering = threading.Thread(target=echo)
    answering.start()
    with connected(sock, authority) as client:
        client.setblocking(False)
        buffer = memoryview(bytearray(4 * RECORD_BYTES))
        with pytest.raises(BlockingIOError):
            client.recv_into(buffer)
        client.sendall(LARGE)
        received = b""
        while len(received) < len(LARGE):
            assert select.select([client], [], [], 30)[0], "no event for what is left"
            with contextlib.suppress(BlockingIOError):  # a part of a record
                received += buffer[: client.recv_into(buffer)]
    answering.join()
    assert received == LARGE


def test_the_load_refuses_another_cipher(
    listening: tuple[socket.socket, Authority, ssl.SSLContext],
) -> None:
    sock, authority, server = listening
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    trust = context(authority.pem)
    trust.minimum_version = ssl.TLSVersion.TLSv1_2

    def answer() -> None:
        with server.wrap_socket(sock.accept()[0], server_side=True) as peer:
            peer.recv(1)

    answering = threading.Thread(target=answer)
    answering.start()
    plain = socket.create_connection(sock.getsockname(), 30)
    with pytest.raises(ssl.SSLError, match=f"not {TLS_VERSION}, {CIPHER}"):
        TlsSocket(plain, trust, HOST)
    answering.join()


def test_one_rule_allows_the_load_and_most_are_for_others() -> None:
    rules = locked.rules(variants.RULES)
    assert len(set(rules)) == variants.RULES
    for_load = [rule for rule in rules if rule.principal == locked.ANONYMOUS]
    assert 0 < len(for_load) <= variants.RULES // 5
    assert sum(f"{locked.TOPICS}1".startswith(rule.resource_name) for rule in rules) == 1


def test_a_page_has_what_was_measured(results: Results) -> None:
    results.peers[OURS] = {"missing": None, "version": "1", "replication": "1 copy"}
    figures = {"p50_ms": 1.0, "p99_ms": 51.0, "p999_ms": 60.0, "cores": 0.5}
    figures |= {"begun_per_s": 1000.0, "refused_per_s": 1000.0}
    storm = next(iter(storms.STORMS))
    results.add(storm.name, OURS, 1, figures=figures)
    told = page(results)
    assert f"| {storm.name}, p99, ms | 51.0 |  |  |  | at most 50 ms | NO |" in told
    assert beside.SECTION not in told


@pytest.mark.peers
@pytest.mark.parametrize("comparison", variants.COMPARISONS, ids=lambda one: one.title)
def test_a_node_with_a_feature_beside_one_without(
    comparison: variants.Comparison,
    tmp_path: Path,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variants, "TURNS", 2)
    monkeypatch.setattr(variants, "RULES", FEW_RULES)
    progress = Progress(variants.STEPS)
    variants.compare(comparison, tmp_path, SECONDS, results, progress)
    for workload in comparison.workloads:
        ratio = results.ratio(workload.name, comparison.other.name, "cpu_s_per_million")
        assert ratio is not None
        assert len(results.by_round(workload.name, OURS, "per_s")) == 2


@pytest.mark.peers
def test_storms_are_refused_and_others_are_served(
    tmp_path: Path, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storms, "ROUNDS", 1)
    monkeypatch.setattr(storms, "LOGINS_PER_S", 20)
    monkeypatch.setattr(storms, "LOAD_TIMES", 20)
    storms.measure(tmp_path, SECONDS, results, Progress(storms.STEPS))
    assert results.by_round(storms.CALM.name, OURS, "reached_per_s")[1] > 0
    for workload in storms.STORMS:
        [refused] = results.by_round(workload.name, OURS, "refused_per_s").values()
        assert refused > 0
        assert results.by_round(workload.name, OURS, "unanswered") == {1: 0.0}


@pytest.mark.peers
def test_idle_connections_are_held(
    tmp_path: Path, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "COUNTS", (5, 5_000))
    idle.measure(tmp_path, 1_000, results, Progress(idle.STEPS))
    for kind in idle.KINDS:
        assert results.by_round(idle.workload(5).name, kind.name, "mb")[1] > 0
        reason = results.state(idle.workload(5_000).name, kind.name).nothing
        assert reason == "a process may open 1,000 files here"


@pytest.mark.peers
@pytest.mark.java
def test_kafka_with_the_same_tls_beside_it(
    tmp_path: Path, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := reference.missing():
        pytest.skip(reason)
    monkeypatch.setattr(KafkaTls, "warm_up_s", 1.0)
    kinds = (PenstockTls, KafkaTls)
    workloads = [w for w in beside.CHOSEN if w.name.startswith(("publish", "consume"))]
    plan = Plan(kinds, workloads, 1, SECONDS, tmp_path)
    for kind in kinds:
        results.peers[kind.name] = {"missing": None, "version": kind.version()}
    run_rounds(plan, results, Progress(len(kinds) * len(workloads)), lambda _: None)
    for workload in workloads:
        for kind in kinds:
            assert results.by_round(workload.name, kind.name, "per_s")[1] > 0, results.values
