"""In each cluster: turns Nodes and NodeNetworkConfigs into calls to the ledger, and publishes what it answers."""
