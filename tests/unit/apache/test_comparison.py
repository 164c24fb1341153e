"""The comparison of two runs of Apache Kafka's tests, and the page that is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.apache import comparison, jvm, page, results
from tests.apache.__main__ import run_missing
from tests.apache.comparison import Reasons, compare
from tests.apache.results import Tallies, Tally

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite>
<testcase name="testGood(ClusterInstance)[1]" classname="k.ATest" time="1.5">
<system-out><![CDATA[
unique-id: [engine:j]/[class:k.ATest]/[test-template:testGood(C)]/[test-template-invocation:#1]
display-name: testGood [1]
]]></system-out></testcase>
<testcase name="testGood(ClusterInstance)[2]" classname="k.ATest" time="1,000.5">
<failure message="expected: 1&#10; but was: 2" type="org.x.AssertionFailedError"/>
<system-out><![CDATA[
unique-id: [engine:j]/[class:k.ATest]/[test-template:testGood(C)]/[test-template-invocation:#2]
]]></system-out></testcase>
<testcase name="testLater()" classname="k.ATest" time="0"><skipped/></testcase>
</testsuite>
"""
REASONS = Reasons({"memory": "looks inside", "versions": "another version"}, {})


def tally(passed: int, ran: int) -> Tally:
    return Tally(ran, passed, ["wrong"] * (ran - passed))


def with_tests(**tests: str) -> Reasons:
    named = {key.replace("__", "."): reason for key, reason in tests.items()}
    return Reasons(REASONS.sentences, named)


def test_a_report_is_read_method_by_method(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcomes = list(jvm.parse(report))
    assert [(o.test, o.passed, o.seconds) for o in outcomes] == [
        ("k.ATest.testGood", True, 1.5),
        ("k.ATest.testGood", False, 1000.5),
    ]
    assert outcomes[1].error == "AssertionFailedError: expected: 1 but was: 2"
    method = "[engine:j]/[class:k.ATest]/[test-template:testGood(C)]"
    assert {o.unique_id for o in outcomes} == {method}
    assert results.tallies(outcomes) == {
        "k.ATest.testGood": Tally(2, 1, ["AssertionFailedError: expected: 1 but was: 2"])
    }


def test_a_second_run_counts() -> None:
    first: Tallies = {"k.ATest.a": tally(0, 1), "k.ATest.b": tally(1, 1)}
    found = results.with_second_chances(first, {"k.ATest.a": tally(1, 1)})
    assert results.counts(found) == (2, 2)


@pytest.mark.parametrize(
    ("ours", "reasons", "problems"),
    [
        (tally(2, 2), {}, []),
        (tally(1, 2), {}, ["k.ATest.a: 1 failed here and passed there: wrong"]),
        (tally(1, 2), {"k__ATest__a": "memory"}, []),
        (tally(1, 2), {"k__ATest": "memory"}, []),
        (
            tally(2, 2),
            {"k__ATest__a": "memory"},
            ["k.ATest.a: has a reason in reasons.toml, but no difference"],
        ),
    ],
)
def test_each_difference_has_a_reason_and_each_reason_a_difference(
    ours: Tally, reasons: dict[str, str], problems: list[str]
) -> None:
    there: dict[str, Tallies | None] = {"k.ATest": {"k.ATest.a": tally(2, 2)}}
    found = compare(["k.ATest"], {"k.ATest": {"k.ATest.a": ours}}, there, with_tests(**reasons))
    assert found.problems == problems


def test_a_test_that_did_not_run_here_is_a_difference() -> None:
    found = compare(["k.ATest"], {"k.ATest": {}}, {"k.ATest": {"k.ATest.a": tally(1, 1)}}, REASONS)
    assert found.problems == ["k.ATest.a: 1 failed here and passed there: did not run"]


def test_what_fails_at_both_is_no_difference() -> None:
    both: dict[str, Tallies | None] = {"k.ATest": {"k.ATest.a": tally(0, 1)}}
    assert compare(["k.ATest"], both, both, REASONS).problems == []


def test_a_class_that_was_not_run_is_a_problem() -> None:
    reasons = with_tests(k__ATest__a="memory")
    found = compare(["k.ATest"], {"k.ATest": None}, {"k.ATest": {}}, reasons)
    assert found.problems == ["k.ATest: not run against both"]


def test_the_table_of_reasons_can_be_read() -> None:
    reasons = comparison.load()
    assert reasons.sentences
    assert all("." in key for key in reasons.tests)


def test_a_reason_must_be_explained(tmp_path: Path) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text('[reasons]\nmemory = "x"\n[tests]\n"k.ATest" = "memroy"\n')
    with pytest.raises(ValueError, match="memroy"):
        comparison.load(path)


def test_the_page_names_classes_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "kafka_version", lambda: "9.9")
    here: dict[str, Tallies | None] = {"k.ATest": {"k.ATest.a": tally(1, 2)}, "k.BTest": None}
    there: dict[str, Tallies | None] = {"k.ATest": {"k.ATest.a": tally(2, 2)}, "k.BTest": None}
    reasons = with_tests(k__ATest__a="memory")
    found = compare(["k.ATest", "k.BTest"], here, there, reasons)
    text = page.markdown(found, reasons, page.totals(here, there))
    assert "| `k.ATest` | 1 of 2 | 2 of 2 | 1 memory |" in text
    assert "| `k.BTest` | not run | not run |  |" in text
    assert "| memory | 1 | looks inside |" in text
    assert "1 classes, 2 tests: 1 pass here, 2 there. 1 classes were not run against both." in text


def test_what_failed_is_run_again_when_nothing_else_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Sequence[str]] = []

    def run(target: str, selected: Sequence[str], reports: Path) -> list[jvm.Outcome]:
        ran.append(selected)
        name = selected[0].removeprefix("[")
        passed = selected[0].startswith("[") or name == "k.CTest"
        return [jvm.Outcome(f"{name}.a", passed, 1.0, "" if passed else "wrong", f"[{name}")]

    monkeypatch.setattr(jvm, "run", run)
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    classes = ["k.ATest", "k.BTest", "k.CTest"]
    run_missing("penstock", classes, jobs=2, once=False)
    assert sorted(map(tuple, ran[:3])) == [(name,) for name in classes]
    assert sorted(map(tuple, ran[3:])) == [("[k.ATest",), ("[k.BTest",)]
    for name in classes:
        found = results.read("penstock", name)
        assert results.counts(found or {}) == (1, 1)
    run_missing("penstock", [*classes, "k.DTest"], jobs=2, once=True)
    assert ran[5:] == [["k.DTest"]]
    assert results.read("penstock", "k.DTest") == {"k.DTest.a": tally(0, 1)}
