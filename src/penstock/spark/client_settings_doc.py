"""Writes docs/kafka-options.md:
`python -m penstock.spark.client_settings_doc > docs/kafka-options.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from penstock.kafka import settings
from penstock.spark.client_settings import FOLLOWED, REFUSED, SPELLING, UNUSED

_HEAD = """\
# Options that begin with `kafka.`

This page is generated from the tables in `src/penstock/kafka/settings.py` and
`src/penstock/spark/client_settings.py`; do not edit it (`make docs` writes it anew).

Source and sink of `format("penstock")` take the settings of Kafka's clients as options with
`kafka.` before the name, as Spark's own Kafka connector does. Both take the same ones, so that a
query can hand one set of options to either; a setting that is only for the other has no effect.
Java's names and librdkafka's are known. A name that is not on this page is an error.

```python
security = {
    "kafka.bootstrap.servers": "broker:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "reader",
    "kafka.sasl.password": os.environ["READER_PASSWORD"],
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/etc/kafka/ca.pem",
}
spark.read.format("penstock").options(**security, subscribe="orders").load()
```

Certificates and keys are PEM. A file is read on every machine that runs tasks: put it there,
or hand its text over in the option. What Java keeps in a store becomes PEM with

```
keytool -exportcert -rfc -alias CA -keystore truststore.jks > ca.pem
keytool -importkeystore -srckeystore keystore.jks -destkeystore client.p12 -deststoretype PKCS12
openssl pkcs12 -in client.p12 -out client.pem
```

A password goes to the tasks with the query, since they connect, and is shown in no message and no
plan. Kerberos and OAuth cannot be had here; Spark's own Kafka connector has them.
"""


def page() -> str:
    """The whole page."""
    families = {
        f"{family}*": f"{why}; {SPELLING.elsewhere}"
        for family, why in settings.REFUSED_FAMILIES.items()
    }
    aliases = {name: f"`{java}`" for name, java in settings.ALIASES.items()}
    followed, unused = settings.FOLLOWED | FOLLOWED, settings.UNUSED | UNUSED
    refused = settings.REFUSED | REFUSED | families
    lines = [
        _HEAD,
        *_table("Followed", "meaning; the default in brackets", followed),
        *_table("librdkafka's names", "Java's", aliases),
        *_table("Taken, without effect", "why", unused),
        *_table("Refused", "what to do", refused),
    ]
    return "\n".join(lines)


def _table(title: str, column: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"| setting | {column} |"
    yield "|---|---|"
    for name, text in rows.items():
        yield f"| `{name}` | {text} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
