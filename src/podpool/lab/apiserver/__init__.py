"""Lite API server: the part of the Kubernetes API that the simulator, the fast tests and `podpool up` need.

Where it differs from kube-apiserver, it is wrong: one test suite runs against both.
"""
