"""The coordinators: what decides for consumer groups, in memory and without I/O.

Pure: events and a time go in, records, answers and timers come out. The drivers in `coordinating/`
append the records, keep the timers and give the answers.
"""
