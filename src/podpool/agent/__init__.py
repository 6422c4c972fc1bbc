"""The agent of one node: owns the node's pool of addresses, answers the plugin, asks for more or less.

What it decides it first writes down as a record (`records`); the same records, read again after a restart, bring back
the same state. Everything it stands on is handed in, so that many agents fit in one process.
"""
