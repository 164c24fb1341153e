"""A node put together: its data folder, its quorum, its broker, its listeners; start and stop."""
