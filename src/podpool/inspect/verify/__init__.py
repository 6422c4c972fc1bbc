"""Self-test of a cluster: short-lived Pods on its nodes, and whether their addresses are as they should be."""
