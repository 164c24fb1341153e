"""Settings of every Spark that the tests start, in this process or in a driver of its own."""

from __future__ import annotations

from .reference import JVM_OPTIONS

QUICK_JVM = {"spark.driver.extraJavaOptions": " ".join(JVM_OPTIONS)}
"""A third less processor time for a Spark that lives for minutes."""

SETTINGS = QUICK_JVM | {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
