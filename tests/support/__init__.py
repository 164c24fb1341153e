"""What the tests stand on: processes to talk to, a raw client, a batch builder, helpers."""
