"""Conversions between NNCs and ledger messages. Pure.

The status has everything that an agent needs before it serves, including Azure's CNS: all four values of the scaler, a
lower-case NC id, gateway and address space.
"""

from typing import Any

import msgspec

from podpool.api.azure import (
    AGENT_ANNOTATION,
    FINALIZER,
    NODE_NETWORK_CONFIGS,
    AgentReport,
    NodeNetworkConfig,
    NodeScaler,
    agent_report,
)
from podpool.api.builtin import NODES, Node
from podpool.controller.scaler_policy import PublishedSubnet
from podpool.controller.settings import FORMER_SUBNET_LABEL, SUBNET_LABEL, ControllerSettings, parse_subnet
from podpool.core.errors import InvalidInput
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.ledger.messages import (
    DemandReport,
    NetworkContainerRecord,
    NetworkContainerState,
    ReconcileItem,
    SubnetName,
)

SUBNET_FULL = "NCUpdateSubnetFullError"


def subnet_of(node: Node, settings: ControllerSettings) -> SubnetName:
    """Return the subnet of a node: from its label, or the cluster's default if the label is missing or invalid."""
    try:
        return _subnet_label(node) or settings.subnet
    except InvalidInput:
        return settings.subnet


def subnet_label_error(node: Node) -> str:
    """Return why a node's subnet label is invalid or not read, or an empty string."""
    try:
        found = _subnet_label(node)
    except InvalidInput as error:
        return str(error)
    if found is None and FORMER_SUBNET_LABEL in node.metadata.labels:
        name = node.metadata.name
        return f"label {FORMER_SUBNET_LABEL} of node {name} is read no more: an administrator must set {SUBNET_LABEL}"
    return ""


def _subnet_label(node: Node) -> SubnetName | None:
    label = node.metadata.labels.get(SUBNET_LABEL)
    return None if label is None else parse_subnet(label, what=f"label {SUBNET_LABEL} of node {node.metadata.name}")


def owner_uid(nnc: NodeNetworkConfig) -> str:
    """Return the UID of the Node that owns an NNC."""
    return next((each.uid for each in nnc.metadata.owner_references if each.controller), "")


def report_is_about(nnc: NodeNetworkConfig, nc: str) -> bool:
    """Return whether the agent's report refers to this NC; a report without an NC id refers to those in the status."""
    report = agent_report(nnc)
    if report and report.network_container:
        return report.network_container == nc
    return nc in {each.id for each in nnc.status.network_containers}


def claimed_nc(node: Node, nnc: NodeNetworkConfig | None) -> str:
    """Return the NC that the agent of the current boot claims as its own, or an empty string."""
    report = agent_report(nnc) if nnc else None
    return report.network_container if report and node.boot_id and report.boot_id == node.boot_id else ""


def reconcile_item(
    nnc: NodeNetworkConfig,
    *,
    node_uid: str,
    nc: str | None,
    subnet: SubnetName,
    settings: Settings,
    pinned: Scaler | None = None,
) -> ReconcileItem:
    """Return the ledger request for what an NNC's spec and report ask for."""
    report = agent_report(nnc)
    return ReconcileItem(
        subnet=subnet,
        node=nnc.metadata.name,
        node_uid=node_uid,
        nc_id=nc,
        boot_id=(report.boot_id or None) if report else None,
        wanted=min(max(nnc.spec.requested, 0), settings.node_maximum),
        released=nnc.spec.pending_release,
        cooled_seconds=report.cooled_seconds if report else 0.0,
        report=_demand_report(report) if report else None,
        pinned=pinned,
        maximum=settings.node_maximum,
    )


def reconcile_item_of_record(record: NetworkContainerRecord, *, node: Node, settings: Settings) -> ReconcileItem:
    """Return the ledger request that keeps an NC as recorded, for the Node that it belongs to now."""
    return ReconcileItem(
        subnet=record.state.subnet,
        node=record.node,
        node_uid=node.metadata.uid,
        nc_id=record.state.nc_id,
        boot_id=record.boot_id,
        wanted=record.wanted,
        released=record.released,
        cooled_seconds=record.cooled_seconds,
        report=record.report,
        pinned=record.pinned,
        maximum=settings.node_maximum,
    )


def build_nnc(node: Node, *, namespace: str, record: NetworkContainerRecord | None) -> dict[str, Any]:
    """Return a node's NNC: new and without a request, or as recorded in the ledger."""
    owner = {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": node.metadata.name,
        "uid": node.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    spec: dict[str, Any] = {"requestedIPCount": record.wanted if record else 0}
    if record and record.released:
        spec["ipsNotInUse"] = list(record.released)
    return {
        "apiVersion": NODE_NETWORK_CONFIGS.api_version,
        "kind": NODE_NETWORK_CONFIGS.kind,
        "metadata": {
            "name": node.metadata.name,
            "namespace": namespace,
            "labels": {"managed": "true", "owner": node.metadata.name},
            "annotations": _annotations(record) if record and record.boot_id == node.boot_id else {},
            "finalizers": [FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def build_status(
    state: NetworkContainerState, subnet: PublishedSubnet, node: Node, settings: Settings
) -> dict[str, Any]:
    """Return the NNC status for an NC and its subnet."""
    gateway = {"defaultGateway": subnet.gateway} if subnet.gateway else {}
    nc = {
        "id": state.nc_id,
        "assignmentMode": "dynamic",
        "type": "vnet",
        "primaryIP": state.primary,
        "subnetName": state.subnet.name,
        "vnetID": state.subnet.network,
        "subnetAddressSpace": subnet.address_space,
        "ipAssignments": [{"name": grant.id, "ip": grant.address} for grant in state.grants],
        "version": state.version,
        "nodeIP": node.internal_address,
        "status": SUBNET_FULL if state.shortage else "NCUpdateSuccess",
        **({"statusReason": state.shortage_reason} if state.shortage_reason else {}),
        **gateway,
    }
    return {
        "assignedIPCount": len(state.grants),
        "scaler": {
            "batchSize": subnet.scaler.batch,
            "requestThresholdPercent": subnet.scaler.buffer,
            "releaseThresholdPercent": _release_threshold(subnet.scaler.buffer, settings),
            "maxIPCount": settings.node_maximum,
        },
        "status": "Updating" if state.shortage else "Updated",
        "networkContainers": [nc],
    }


def status_is_current(
    nnc: NodeNetworkConfig, state: NetworkContainerState, node: Node, subnet: PublishedSubnet, settings: Settings
) -> bool:
    """Return whether an NNC's status shows this state.

    A changed batch or buffer is written only for a third-party agent: podpool's agent reads the ClusterSubnet. What the
    ClusterSubnet does not have, the maxima from the settings, is written for all.
    """
    status = nnc.status
    if len(status.network_containers) != 1:
        return False
    shown = status.network_containers[0]
    return (
        (shown.id, shown.version, shown.primary_ip) == (state.nc_id, state.version, state.primary)
        and [each.name for each in shown.ip_assignments] == [grant.id for grant in state.grants]
        and (shown.status == SUBNET_FULL, status.status)
        == ((True, "Updating") if state.shortage else (False, "Updated"))
        and shown.status_reason == (state.shortage_reason or "")
        and shown.node_ip == node.internal_address
        and (shown.subnet_address_space, shown.default_gateway) == (subnet.address_space, subnet.gateway)
        and (agent_report(nnc) is not None or _scaler(status.scaler) == subnet.scaler)
        and status.scaler.release_threshold_percent
        == _release_threshold(status.scaler.request_threshold_percent, settings)
        and status.scaler.max_ip_count == settings.node_maximum
    )


def _release_threshold(buffer: int, settings: Settings) -> int:
    """Return the max buffer in hundredths: a batch above the buffer, which a ClusterSubnet may set, or more."""
    return max(settings.max_buffer or 0, buffer + 100)


def _scaler(shown: NodeScaler) -> Scaler:
    return Scaler(shown.batch_size, shown.request_threshold_percent)


def _demand_report(report: AgentReport) -> DemandReport:
    return DemandReport(demand=report.demand, waiting=report.waiting, batch=report.batch, version=report.version)


def _annotations(record: NetworkContainerRecord) -> dict[str, str]:
    """Return the agent's report of the same boot; one of another boot would keep the agent from accepting the NC."""
    if record.report is None:
        return {}
    report = AgentReport(
        demand=record.report.demand,
        waiting=record.report.waiting,
        batch=record.report.batch,
        cooled_seconds=record.cooled_seconds,
        boot_id=record.boot_id or "",
        version=record.report.version,
        network_container=record.state.nc_id,
    )
    return {AGENT_ANNOTATION: msgspec.json.encode(report).decode()}
