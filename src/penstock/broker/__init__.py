"""What a node does with its partitions: append, read, acknowledge, keep house; the pure cores'
drivers.
"""
