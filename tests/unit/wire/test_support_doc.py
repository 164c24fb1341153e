"""The support page says what it is told, for every API of Kafka."""

from __future__ import annotations

from penstock.wire.apis import APIS, ApiKey
from penstock.wire.support_doc import render

SERVED = {
    ApiKey.PRODUCE: range(3, 14),
    ApiKey.FETCH: range(12, 19),
    ApiKey.DESCRIBE_PRODUCERS: range(1),
}


def test_rows() -> None:
    page = render(SERVED)
    assert "| 0 | Produce | clients | 3 to 13 | 3 to 13 |" in page
    assert "| 1 | Fetch | both | 4 to 18 | 12 to 18 |" in page
    assert "| 61 | DescribeProducers | clients | 0 | 0 |" in page
    assert "| 22 | InitProducerId | clients | 0 to 5 | not served |" in page
    assert "| 52 | Vote | quorum | 0 to 2 | not served |" in page
    assert f"Served are 3 of {len(APIS)} APIs, 2 of them in all versions." in page


def test_every_api_has_one_row() -> None:
    rows = [line for line in render({}).splitlines() if line.startswith("| ")][1:]
    assert [int(row.split("|")[1]) for row in rows] == [key.value for key in ApiKey]
