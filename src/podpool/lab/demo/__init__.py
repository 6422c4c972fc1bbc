"""`podpool up`: a demo cluster on one machine, without Kubernetes and without root, and a scenario on it.

Every component is a process, as in a cluster. Nodes, scheduler and kubelets are simulated here; kubelets call the real
CNI plugin.
"""
