"""Members of a share group of confluent-kafka: `share_worker.py BOOTSTRAP GROUP TOPIC MEMBERS
[SETTING=VALUE ...]`.

Each member acknowledges what it gets, and says so in lines of JSON: what it got, then what of it
was acknowledged. A record is [partition, offset, delivery count]. With the setting `holds` it keeps
what it has got first. The end of stdin has them leave.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback

from confluent_kafka import KafkaException, ShareConsumer  # type: ignore[attr-defined]

POLL_SECONDS = 0.2
COMMIT_SECONDS_MAX = 60.0
Place = list[int]

_leaving = threading.Event()
_saying = threading.Lock()


def say(member: int, what: str, records: list[Place]) -> None:
    line = {"at": int(time.time() * 1000), "member": member, what: records}
    with _saying:
        print(json.dumps(line), flush=True)


def work(number: int, settings: dict[str, str], topic: str) -> None:
    holds = settings.pop("holds", None) is not None
    member = ShareConsumer(settings | {"client.id": f"confluent-{number}"})
    member.subscribe([topic])
    while not _leaving.is_set():
        messages = [m for m in member.poll(timeout=POLL_SECONDS) if m.error() is None]
        if not messages:
            continue
        got = [[m.partition(), m.offset(), m.delivery_count()] for m in messages]
        say(number, "got", got)
        if holds:
            _leaving.wait()
            break
        for message in messages:
            member.acknowledge(message)
        try:
            answers = member.commit_sync(timeout=COMMIT_SECONDS_MAX)
        except KafkaException:
            answers = {}
        accepted = {place.partition for place, error in answers.items() if error is None}
        for what, is_so in (("acked", True), ("failed", False)):
            records = [place for place in got if (place[0] in accepted) is is_so]
            if records:
                say(number, what, records)
    member.close()


def run(number: int, settings: dict[str, str], topic: str) -> None:
    try:
        work(number, settings, topic)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    bootstrap, group, topic, members, *rest = sys.argv[1:]
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "log_level": "2",
        **dict(item.split("=", 1) for item in rest),
    }
    threads = [
        threading.Thread(target=run, args=(number, dict(settings), topic))
        for number in range(int(members))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    _leaving.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
