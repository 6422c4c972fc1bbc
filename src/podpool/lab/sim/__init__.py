"""Simulator: the unmodified controller, agents and ledger in one process on a virtual clock, with injected faults.

The same seed gives the same history, byte for byte: no real time, thread, socket or unordered set decides anything.
"""
