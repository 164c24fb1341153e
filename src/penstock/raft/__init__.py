"""The metadata quorum. Pure: events in, effects out; the driver does the I/O."""
