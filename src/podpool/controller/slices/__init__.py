"""Node slices: from NetworkAttachmentDefinitions (NADs) to NodeSlicePools, IPPools and Leases.

Invariants: an address is in the slice of one node; a slice is taken from a node only after its agent returned it (a
Lease without a holder), or when the node is deleted; no node waits while a slice is free.

    NADs -> plan -> assignment -> NodeSlicePools                        nad_planner, nodeslicepool_reconciler
    assignment -> IPPool, then Lease -> the node's agent takes it       slice_reconciler
    deleted Node -> Lease, then IPPool deleted -> the next node         node_gc
    allocations and reservations of deleted Pods in shared pools        orphan_gc
"""
