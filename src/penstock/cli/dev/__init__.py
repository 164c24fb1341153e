"""`penstock dev`: a cluster on this machine, one process per node, for work and to try faults."""
