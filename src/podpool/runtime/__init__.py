"""Clock, disk, transport and randomness as small protocols, and HTTP, health, logging and process on top.

They are passed in, so that the same code runs on a node, many times in one process, and in the simulator.
"""
