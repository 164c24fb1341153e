"""Penstock beside its peers: the same loads on each, in turns, on one machine."""
