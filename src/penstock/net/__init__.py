"""Listeners and connections: bytes from sockets become frames, answers become bytes, within named
limits.
"""
