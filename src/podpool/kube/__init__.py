"""The road to the API server: client, reflector and store, work queue, leader election, events, configuration.

Nothing here knows HTTP: all goes over a `runtime.transport.Transport`. Time is the running loop's, randomness is handed
in, so that all of it runs in the simulator as it runs on a node.
"""
