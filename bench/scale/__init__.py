"""How far one machine goes: topics, partitions, connections, and what each costs as it grows."""
