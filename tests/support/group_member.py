"""A member of a group in a process of its own, to be killed: `group_member.py SETTINGS TOPIC`."""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer


def main() -> None:
    client = Consumer({**json.loads(sys.argv[1]), "log_level": 2})
    client.subscribe([sys.argv[2]])
    while True:
        client.poll(0.1)


if __name__ == "__main__":
    main()
