"""`podpool up`: the whole system on one machine, without a cluster and without root, and a story that it plays.

Every part is a process of its own, as in a cluster. What a cluster has beside podpool is played here: machines that
register as Nodes, a scheduler that binds Pods, and kubelets that start the plugin for each.
"""
