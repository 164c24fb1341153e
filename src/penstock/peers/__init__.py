"""The small client that nodes call each other with: connections, pipelined requests, time-outs."""
