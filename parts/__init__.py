"""Real components for tests and benchmarks: control plane, nodes, PostgreSQL, CNI plugins, Chromium.

`python -m parts` downloads and builds what is missing, once, into the user's cache; tests only start it. All traffic
stays on loopback or inside namespaces created here, every version is pinned, and every process ends with its test
run.
"""
