"""`penstock plan`: how many nodes, partitions and disks a load needs."""
