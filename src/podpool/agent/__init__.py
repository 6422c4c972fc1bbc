"""The agent of one node: owns the node's pool of addresses, answers the CNI plugin, scales the pool.

Every decision is journalled as a record (`records`) before it takes effect; replaying the records after a restart
restores the same state. All dependencies are passed in, so that many agents fit in one process.
"""
