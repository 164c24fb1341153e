"""Apache Kafka's own integration tests, run against Penstock and against Kafka, and compared."""
