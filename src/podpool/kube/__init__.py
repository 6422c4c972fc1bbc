"""Kubernetes client: typed requests, informers, workqueue, leader election, Events, expectations, configuration.

Requests go through a `runtime.transport.Transport`, time is the running loop's and randomness is passed in, so that
everything here runs in the simulator as it does on a node.
"""
