"""Benchmarks: podpool beside other implementations on one machine; results include missed goals."""
