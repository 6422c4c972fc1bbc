"""What every process stands on: clock, disk, transport and randomness, each as a small protocol handed in from outside.

The same code runs on a node, many times in one process, and in the simulator, where all of these are made up.
"""
