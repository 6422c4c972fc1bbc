"""All checks, in the order of an installation."""

import msgspec

from podpool.inspect.preflight import cluster_checks as of_cluster
from podpool.inspect.preflight.node_files import NodePaths, check_node_files
from podpool.inspect.preflight.overlaps import check_overlaps
from podpool.inspect.preflight.permissions import check_permissions
from podpool.inspect.preflight.report import PreflightReport
from podpool.inspect.preflight.snapshot import API_SERVER, read_preflight_snapshot
from podpool.inspect.preflight.subnet_checks import check_ledger, check_subnets, used_subnets
from podpool.kube.client import KubeClient
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import Clock


class PreflightOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is not read from the cluster."""

    subnet: str = ""
    """Of Nodes without a label, as NETWORK.SUBNET."""
    namespace: str = "kube-system"
    """Namespace of the service accounts."""
    paths: NodePaths


async def run_preflight(
    kube: KubeClient, ledger: LedgerClient | None, *, clock: Clock, options: PreflightOptions
) -> PreflightReport:
    """Run all checks; raises an error if the API server is unreachable."""
    snapshot = await read_preflight_snapshot(kube, ledger, clock=clock)
    permissions = await check_permissions(kube, namespace=options.namespace)
    return PreflightReport(
        findings=(
            *of_cluster.check_version(snapshot),
            of_cluster.check_clock("clock", API_SERVER, snapshot.clock),
            *of_cluster.check_crds(snapshot),
            *permissions,
            *of_cluster.check_admission(snapshot),
            *of_cluster.check_nodes(snapshot),
            *check_node_files(snapshot.nodes.value, options.paths),
            *of_cluster.check_other_cnis(snapshot),
            *check_ledger(snapshot),
            *check_subnets(snapshot, default=options.subnet),
            *check_overlaps(snapshot, subnets=used_subnets(snapshot, default=options.subnet)),
        )
    )
