"""The lowest room: errors, ids, clock and randomness, named limits. It imports no other room."""
