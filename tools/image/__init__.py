"""The container image: one OCI image with all components, for amd64 and arm64, built without a container engine.

It consists of Debian's packages with the Python runtime, the wheels that requirements.lock pins, and podpool's wheel.
Everything fetched is pinned by hash. Nothing in it depends on the time, the machine or the order of a directory: two
builds are identical.
"""
