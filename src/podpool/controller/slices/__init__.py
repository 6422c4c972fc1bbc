"""Node slices: from NetworkAttachmentDefinitions (NADs) to NodeSlices and NodeSlicePools.

Invariants: an address is in the slice of one node; a slice is taken from a node only after its agent returned it, or
when the node is gone; no node waits while a slice is free.

    NADs -> plan -> assignment of each network                 nad_planner, nodeslicepool_reconciler
    assignment -> spec of a node's NodeSlices, all networks    node_slices_spec (decides), node_slices_reconciler
    assignment -> NodeSlicePools, for Whereabouts' tools       nodeslicepool, nodeslicepool_reconciler
    spec and status of NodeSlices -> who owns what             ownership (decides), slice_index
    restored API server -> nothing until agents have answered  inventory, inventory_configmap
    gone Node -> its slices are free                           node_gc
    allocations and reservations of deleted Pods               shared_pool_orphan_gc
"""
