"""Publish and subscribe: several groups read one topic, and each of them sees every message.

    python examples/publish_subscribe.py [HOST:PORT]

Publishes orders once. Billing, shipping and statistics subscribe by a group each: a group keeps its
own place in the topic, so none of them takes a message away from another, and one that starts later
begins with the first message all the same.
"""

from __future__ import annotations

import sys
import threading
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = f"orders-{uuid.uuid4().hex[:8]}"
SUBSCRIBERS = ("billing", "shipping", "statistics")
ORDERS = 20

received: dict[str, list[str]] = {name: [] for name in SUBSCRIBERS}


def subscribe(name: str) -> None:
    """Reads every order once."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{TOPIC}-{name}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    while len(received[name]) < ORDERS:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            received[name].append(message.value().decode())
    consumer.close()


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result()
    threads = [threading.Thread(target=subscribe, args=(name,)) for name in SUBSCRIBERS]
    for thread in threads[:-1]:
        thread.start()

    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for i in range(ORDERS):
        producer.produce(TOPIC, f"order {i}", partition=i % 2)
    producer.flush()
    threads[-1].start()

    for thread in threads:
        thread.join()
    for name, orders in received.items():
        print(f"{name} got {len(set(orders))} of {ORDERS} orders")
    admin.delete_topics([TOPIC])[TOPIC].result()


if __name__ == "__main__":
    main()
