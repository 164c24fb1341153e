"""The APIs that clients call: one file per API key, the registration beside the handler."""
