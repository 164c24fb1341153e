"""Kafka Streams with `exactly_once_v2` on a cluster: words are counted once, over two kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.transactions import SETTINGS, newest_features
from support.word_count import WordCount, Words

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

KILLED_AT = (150, 400)


@pytest.fixture
def cluster(target: str, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path / "cluster", SETTINGS, kind=target) as made:
        newest_features(made.nodes[1])
        Words.make_topics(made)
        yield made


@pytest.fixture
def application(cluster: Cluster, tmp_path: Path) -> Iterator[WordCount]:
    made = WordCount(cluster, tmp_path)
    yield made
    made.kill()


def test_words_are_counted_once(cluster: Cluster, application: WordCount) -> None:
    words = Words(cluster)
    for least in KILLED_AT:
        application.start()
        words.until(least, application)
        application.kill()
    application.start()
    words.all_counted(application)
    words.check()
