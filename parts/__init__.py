"""The real programs that the tests run on: a Kubernetes control plane, nodes, PostgreSQL, CNI plugins in namespaces.

`python -m parts` fetches and builds what is missing, once, into the user's cache; the tests only start it.
What must hold: all traffic stays on loopback or inside namespaces made here, every version is exact, and every process
dies with the tests that started it.
"""
