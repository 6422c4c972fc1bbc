"""Why a node has no slice, in words that a person can act on."""

from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.api.whereabouts import RETURN_ANNOTATION, IPPool
from podpool.core.ranges import Prefix
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION


def why_no_slice(node: str, pools: SliceInformers, *, network: str, wanted: RangeConfig) -> str:
    """Say what there is instead, and where to look."""
    what = f"node {node} has no slice of {wanted.prefix}" + (f" in network {network}" if network else "")
    if not pools.known:
        return (
            f"{what} that its agent knows of: it has not listed its IPPools and Leases yet, so see whether it reaches "
            "the API server, and whether the kinds are defined there (podpool controller install-crds)"
        )
    offered = [each for each in map(pools.pool, sorted(pools.names())) if each and _is_of(each, network, wanted)]
    for pool in offered:
        name, reason = pool.metadata.name, pool.metadata.annotations.get(RETURN_ANNOTATION)
        if reason:
            return f"{what} any more: IPPool {name} is being handed back ({reason}), and no other was offered yet"
        lease = pools.lease(name)
        held = lease.spec.holder_identity if lease else None
        return f"{what}: IPPool {name} was offered, but {_why_not_taken(node, held or '')}"
    return (
        f"{what}: if the network's NodeSlicePool in {pools.namespace} does not list the node, there are more nodes "
        "than slices, so use a larger range or smaller slices; if there is no such object, see whether podpool's "
        "controller runs, and what its Events on the NetworkAttachmentDefinition say"
    )


def why_kept_back(slice_: Prefix) -> str:
    """Say that a slice gives nothing because of an address that was given when all nodes shared the range."""
    told = "a Pod of this node has an address of it from before the range was cut"
    return f"slice {slice_} gives nothing yet, {told}: it does when that Pod is gone"


def _why_not_taken(node: str, held: str) -> str:
    if held.startswith(f"{node}/"):
        return "the controller has not agreed yet that its Lease is this node's"
    return f"its Lease is held by {held}" if held else "its Lease could not be taken yet"


def _is_of(pool: IPPool, network: str, wanted: RangeConfig) -> bool:
    notes = pool.metadata.annotations
    return notes.get(NETWORK_ANNOTATION, "") == network and notes.get(RANGE_ANNOTATION) == str(wanted.prefix)
