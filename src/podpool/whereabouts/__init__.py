"""Whereabouts-compatible decisions: configuration, object names, allocation in shared ranges, slices, orphan GC.

All functions are pure. They read no file, call no API server and know no time. Agent and controller pass in what they
have read, and carry out what is returned.
"""
