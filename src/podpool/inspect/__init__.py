"""One live view of a cluster: what the ledger, the NNCs, the Pods and the slices say together, for whoever looks."""
