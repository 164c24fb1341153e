"""Exactly once into a database: the results and the offsets in one transaction of the database.

    python examples/offsets_in_database.py [HOST:PORT [DATABASE]]
    python examples/offsets_in_database.py HOST:PORT DATABASE work TOPIC GROUP NAME

DATABASE is a file of SQLite, or postgresql://USER@HOST/NAME, which wants `pip install psycopg`.
Without it, a file that is deleted at the end.

The second form is a worker: it adds the payments in TOPIC to the balances of their accounts. The
balances and the offset of the next payment change in the same transaction of the database, so
that no payment is counted twice or left out, however often workers are killed. The group only
shares the partitions out; nothing is committed to it. Should a worker go on with a partition that
is another's by now, the database refuses: the offset is not the one that it knows.

The first form shows that: it publishes payments, runs two workers, kills them with SIGKILL again
and again, and compares the balances with what was published.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
BATCH_MESSAGES, BATCH_SECONDS = 100, 0.1
WORKERS, PARTITIONS, ACCOUNTS, PAYMENTS, KILLS = 2, 4, 10, 2_000, 4


class Moved(Exception):
    """The partition's offset is not what this worker knows: another has gone on with it."""


class Database:
    """The two tables, in SQLite or PostgreSQL."""

    def __init__(self, where: str) -> None:
        self.is_postgresql = where.startswith(("postgresql://", "postgres://"))
        if self.is_postgresql:
            import psycopg

            self.connection = psycopg.connect(where, autocommit=True)
        else:
            self.connection = sqlite3.connect(where, timeout=30, isolation_level=None)

    def execute(self, statement: str, *values):
        if self.is_postgresql:
            statement = statement.replace("?", "%s")
        return self.connection.execute(statement, values)

    def prepare(self) -> None:
        self.execute(
            "CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, amount BIGINT NOT NULL)"
        )
        self.execute(
            "CREATE TABLE IF NOT EXISTS positions (topic TEXT, partition INTEGER,"
            " next_offset BIGINT NOT NULL, PRIMARY KEY (topic, partition))"
        )

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next payment to count."""
        self.execute(
            "INSERT INTO positions VALUES (?, ?, 0) ON CONFLICT DO NOTHING", topic, partition
        )
        found = self.execute(
            "SELECT next_offset FROM positions WHERE topic = ? AND partition = ?", topic, partition
        )
        return found.fetchone()[0]

    def add(self, amounts: dict[str, int], moves: dict[tuple[str, int], tuple[int, int]]) -> None:
        """Results and offsets, together or not at all."""
        self.execute("BEGIN" if self.is_postgresql else "BEGIN IMMEDIATE")
        try:
            for (topic, partition), (known, following) in sorted(moves.items()):
                moved = self.execute(
                    "UPDATE positions SET next_offset = ?"
                    " WHERE topic = ? AND partition = ? AND next_offset = ?",
                    *(following, topic, partition, known),
                )
                if moved.rowcount != 1:
                    raise Moved
            for account, amount in sorted(amounts.items()):
                self.execute(
                    "INSERT INTO balances VALUES (?, ?) ON CONFLICT (account)"
                    " DO UPDATE SET amount = balances.amount + excluded.amount",
                    *(account, amount),
                )
            self.execute("COMMIT")
        except BaseException:
            self.execute("ROLLBACK")
            raise

    def balances(self) -> dict[str, int]:
        return dict(self.execute("SELECT account, amount FROM balances").fetchall())

    def counted(self, topic: str) -> int:
        """How many payments are in the balances."""
        found = self.execute("SELECT SUM(next_offset) FROM positions WHERE topic = ?", topic)
        return int(found.fetchone()[0] or 0)


class Worker:
    def __init__(self, database: Database, topic: str, group: str, name: str) -> None:
        self.database = database
        self.known: dict[tuple[str, int], int] = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": group,
                "group.instance.id": name,  # a new process of this name takes its place at once
                "session.timeout.ms": 6_000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,  # the database has the offsets
            }
        )
        self.consumer.subscribe([topic], on_assign=lambda _, places: self.begin(places))

    def begin(self, places: list[TopicPartition]) -> None:
        """Reads these partitions from where the database says."""
        for place in places:
            place.offset = self.database.position(place.topic, place.partition)
        self.known = {(place.topic, place.partition): place.offset for place in places}
        self.consumer.assign(places)

    def run(self, stop_asked: list[bool]) -> None:
        while not stop_asked:
            amounts: Counter[str] = Counter()
            following: dict[tuple[str, int], int] = {}
            for message in self.consumer.consume(BATCH_MESSAGES, BATCH_SECONDS):
                if message.error() is not None:
                    if message.error().code() == KafkaError._FATAL:
                        raise KafkaException(message.error())
                    continue
                place = (message.topic(), message.partition())
                # What was fetched before the partition came, or came back, is not to be counted.
                if message.offset() >= self.known.get(place, sys.maxsize):
                    amounts[message.key().decode()] += int(message.value())
                    following[place] = message.offset() + 1
            if following:
                self.commit(amounts, following)
        self.consumer.close()

    def commit(self, amounts: Counter[str], following: dict[tuple[str, int], int]) -> None:
        try:
            moves = {place: (self.known[place], following[place]) for place in following}
            self.database.add(amounts, moves)
            self.known |= following
        except Moved:
            self.begin(self.consumer.assignment())


def work(where: str, topic: str, group: str, name: str) -> None:
    stop_asked: list[bool] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop_asked.append(True))
    database = Database(where)
    database.prepare()
    try:
        Worker(database, topic, group, name).run(stop_asked)
    except KafkaException as e:
        reason = f"{name} gives up, since another has taken its place: {e.args[0]}"
        print(reason, file=sys.stderr, flush=True)
        os._exit(1)  # there is nothing to hand over: do not wait for a group that has gone on


def show(where: str) -> None:
    run = uuid.uuid4().hex[:8]
    topic, group = f"payments-{run}", f"accounting-{run}"
    database = Database(where)
    database.prepare()
    before = Counter(database.balances())
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()

    def start(name: str) -> subprocess.Popen:
        command = [sys.executable, __file__, BOOTSTRAP, where, "work", topic, group, name]
        return subprocess.Popen(command)

    names = [f"accountant-{i}" for i in range(1, WORKERS + 1)]
    workers = {name: start(name) for name in names}
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    wanted = before.copy()
    for i in range(PAYMENTS):
        account, amount = f"account {i % ACCOUNTS}", random.randint(1, 100)
        producer.produce(topic, str(amount), account)
        wanted[account] += amount
        if i % 100 == 0:
            producer.flush()
            time.sleep(0.2)  # so that there is work while workers die
        if i % (PAYMENTS // KILLS) == PAYMENTS // KILLS // 2:
            victim = random.choice(names)
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = start(victim)
    producer.flush()

    while database.counted(topic) < PAYMENTS:
        time.sleep(0.1)
    for worker in workers.values():
        worker.terminate()
    for worker in workers.values():
        worker.wait()
    print(f"{PAYMENTS} payments, {database.counted(topic)} counted, {KILLS} kills")
    is_right = database.balances() == wanted
    print("the balances are right" if is_right else "THE BALANCES ARE WRONG")
    admin.delete_topics([topic])[topic].result()


def main() -> None:
    if sys.argv[3:4] == ["work"]:
        work(sys.argv[2], *sys.argv[4:7])
    elif len(sys.argv) > 2:
        show(sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            show(str(Path(folder) / "balances.sqlite"))


if __name__ == "__main__":
    main()
