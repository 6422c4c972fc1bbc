"""Node slices: from NetworkAttachmentDefinitions to tables, IPPools and Leases, and back again.

What must hold: an address is in the slice of one node; a slice leaves a node by its agent's consent, which is an empty
Lease, or when the node is gone; nobody waits beside a slice that is free.

    NADs -> plans -> tables -> NodeSlicePools                           plans, tables
    table -> offers -> IPPool, then Lease -> the node's agent takes it  offers
    Node gone -> Lease, then IPPool deleted -> the next in the table    lost
    entries and reservations of Pods that are gone                      sweep
"""
