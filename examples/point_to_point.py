"""Point to point: the members of one group share the work, and each job is done by one of them.

    python examples/point_to_point.py [HOST:PORT]

Publishes jobs to a topic with four partitions. Three workers, threads here and processes in real
life, join one group: each owns some of the partitions, so that each job goes to exactly one worker.
A worker commits a job when it is done; one that dies before is replaced, and the job comes again.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = f"jobs-{uuid.uuid4().hex[:8]}"
GROUP = f"{TOPIC}-workers"
WORKERS, PARTITIONS, JOBS = 3, 4, 60

lock = threading.Lock()
owned: dict[str, int] = {}  # partitions by worker
done: dict[str, str] = {}  # worker by job
finished = threading.Event()


def work(name: str) -> None:
    """Takes jobs until all are done."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    while not finished.is_set():
        message = consumer.poll(0.1)
        owned[name] = len(consumer.assignment())
        if message is None or message.error():
            continue
        job = message.value().decode()
        with lock:
            done[job] = name
            if len(done) == JOBS:
                finished.set()
        consumer.commit(message, asynchronous=False)
    consumer.close()


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    names = [f"worker-{i}" for i in range(1, WORKERS + 1)]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    # The first jobs should find everybody at work.
    while sum(owned.values()) != PARTITIONS or not all(owned.get(name) for name in names):
        time.sleep(0.1)

    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for i in range(JOBS):
        producer.produce(TOPIC, f"job {i}", partition=i % PARTITIONS)
    producer.flush()

    for thread in threads:
        thread.join()
    for name in names:
        print(f"{name} did {sum(worker == name for worker in done.values())} jobs")
    print(f"{len(done)} of {JOBS} jobs are done")
    admin.delete_topics([TOPIC])[TOPIC].result()


if __name__ == "__main__":
    main()
