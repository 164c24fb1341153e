"""What security costs: TLS beside Apache Kafka and beside none, ACLs, storms of logins."""
