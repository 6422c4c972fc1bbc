"""The per-cluster controller: reconciles Nodes and NodeNetworkConfigs with the ledger, and publishes subnet state."""
