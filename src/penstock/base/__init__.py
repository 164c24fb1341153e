"""The lowest room: errors, ids, clock and randomness, named limits, regular expressions.

It imports no other room.
"""
