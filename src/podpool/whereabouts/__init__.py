"""Whereabouts' world, as far as it is a function of its inputs: configuration, names, assignment, slices, cleaning up.

Nothing here reads a file, asks an API server or knows what time it is. Agent and controller hand in what they have
read, and carry out what comes back.
"""
