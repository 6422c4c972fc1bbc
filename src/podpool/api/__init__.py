"""The Kubernetes objects that podpool reads and writes, as slim frozen structs: unknown fields are skipped when read.

Nothing here is ever written back whole: writes are patches of the fields that are ours, so what we do not know
survives.
"""
