"""Keys for the data on disk: the keys that encrypt it, and where those that wrap them are kept."""
