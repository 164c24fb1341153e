"""A task queue: many workers on few partitions, each task acknowledged by itself.

    python examples/task_queue.py [HOST:PORT]

Publishes tasks to a topic with one partition. Six workers, threads here and processes in real
life, join one share group: each task goes to one of them, whatever its partition. A worker accepts
what it has done; it releases what may go better next time, and the task comes again, to it or to
another; it rejects what never will. A worker that dies gives back what it held.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections import Counter

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = f"tasks-{uuid.uuid4().hex[:8]}"
GROUP = f"{TOPIC}-workers"
WORKERS, TASKS = 6, 60
FLAKY, HOPELESS = "task 7", "task 13"

lock = threading.Lock()
tries: Counter[str] = Counter()
ended: dict[str, str] = {}  # what became of each task
finished = threading.Event()


def attempt(task: str) -> AcknowledgeType:
    """One try at a task."""
    with lock:
        tries[task] += 1
        if task == HOPELESS:
            ended[task] = "rejected"
            return AcknowledgeType.REJECT
        if task == FLAKY and tries[task] == 1:
            return AcknowledgeType.RELEASE
        ended[task] = "done"
        return AcknowledgeType.ACCEPT


def work() -> None:
    """Takes tasks until all have ended."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([TOPIC])
    while not finished.is_set():
        for message in consumer.poll(0.2):
            if message.error() is None:
                consumer.acknowledge(message, attempt(message.value().decode()))
        consumer.commit_sync()
        if len(ended) == TASKS:
            finished.set()
    consumer.close()


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    # A share group begins with what is published from now on, unless it is told otherwise.
    begin = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=[begin])
    admin.incremental_alter_configs([group])[group].result()

    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for i in range(TASKS):
        producer.produce(TOPIC, f"task {i}")
    producer.flush()

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes = Counter(ended.values())
    print(f"{outcomes['done']} tasks are done, {outcomes['rejected']} was rejected")
    print(f"{FLAKY} took {tries[FLAKY]} tries")
    admin.delete_topics([TOPIC])[TOPIC].result()


if __name__ == "__main__":
    main()
