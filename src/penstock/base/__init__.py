"""The ground floor: errors, ids, clock and randomness, named limits. It imports nothing of the
house.
"""
