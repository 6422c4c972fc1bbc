"""The world in one process: the same controller, agents and ledger on a virtual clock, with faults.

What must hold: the same seed gives the same history, byte for byte. No real time, thread, socket or unordered set
decides anything here.
"""
