"""The coordinators of consumer groups and of transactions: decisions in memory, without I/O.

Pure: events and a time go in; records, answers, actions and timers come out. The drivers in
`coordinating/` append the records, keep the timers, send the answers and run the actions.
"""
