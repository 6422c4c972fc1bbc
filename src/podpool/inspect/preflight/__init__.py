"""Preflight: whether podpool can be installed in a cluster, and will work there. It only reads."""
