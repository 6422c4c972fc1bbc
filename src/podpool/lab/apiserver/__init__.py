"""A Kubernetes API small enough to carry: what the simulator, the fast tests and `podpool up` run on.

Where it differs from a real API server, it is wrong; one suite of tests runs on both.
"""
