"""From objects to messages and back: what an NNC asks of the ledger, and the status that tells what it was given.

Pure: nothing here reads or writes. The status holds everything that an agent needs before it serves, also a foreign
one: all four values of the scaler, a lower-case container id, gateway and address space.
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
from podpool.controller.settings import SUBNET_LABEL, ControllerSettings, parse_subnet
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

FULL = "NCUpdateSubnetFullError"


def subnet_of(node: Node, settings: ControllerSettings) -> SubnetName:
    """Tell which subnet a node is on: by its label, else the cluster's default; a bad label is the default too."""
    try:
        return _labelled(node) or settings.subnet
    except InvalidInput:
        return settings.subnet


def mislabelled(node: Node) -> str:
    """Tell what is wrong with a node's label, if anything is."""
    try:
        _labelled(node)
    except InvalidInput as error:
        return str(error)
    return ""


def _labelled(node: Node) -> SubnetName | None:
    label = node.metadata.labels.get(SUBNET_LABEL)
    return None if label is None else parse_subnet(label, what=f"label {SUBNET_LABEL} of node {node.metadata.name}")


def owner_of(config: NodeNetworkConfig) -> str:
    """Tell the UID of the Node that an NNC belongs to."""
    return next((each.uid for each in config.metadata.owner_references if each.controller), "")


def speaks_of(config: NodeNetworkConfig, container: str) -> bool:
    """Tell whether the agent's words in an NNC are about this container; without a name, about what the NNC shows."""
    report = agent_report(config)
    if report and report.container:
        return report.container == container
    return container in {each.id for each in config.status.network_containers}


def claim_of(node: Node, config: NodeNetworkConfig | None) -> str:
    """Tell which container the machine that a Node is now takes for its own; nothing, if it has not said so."""
    report = agent_report(config) if config else None
    return report.container if report and node.boot_id and report.boot_id == node.boot_id else ""


def item_of(
    config: NodeNetworkConfig,
    *,
    node_uid: str,
    container: str | None,
    subnet: SubnetName,
    settings: Settings,
    pinned: Scaler | None = None,
) -> ReconcileItem:
    """Ask for what an NNC asks for."""
    report = agent_report(config)
    return ReconcileItem(
        subnet=subnet,
        node=config.metadata.name,
        node_uid=node_uid,
        container=container,
        boot_id=(report.boot_id or None) if report else None,
        wanted=min(max(config.spec.requested, 0), settings.node_maximum),
        released=config.spec.released,
        rested=report.rested_seconds if report else 0.0,
        report=_reported(report) if report else None,
        pinned=pinned,
        maximum=settings.node_maximum,
    )


def item_of_record(record: NetworkContainerRecord, *, node: Node, settings: Settings) -> ReconcileItem:
    """Ask for what the ledger remembers of a container, for the Node that it belongs to now."""
    return ReconcileItem(
        subnet=record.state.subnet,
        node=record.node,
        node_uid=node.metadata.uid,
        container=record.state.container,
        boot_id=record.boot_id,
        wanted=record.wanted,
        released=record.released,
        rested=record.rested,
        report=record.report,
        pinned=record.pinned,
        maximum=settings.node_maximum,
    )


def config_for(node: Node, *, namespace: str, record: NetworkContainerRecord | None) -> dict[str, Any]:
    """Make a node's NNC: new and asking for nothing, or as the ledger remembers it."""
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


def status_of(state: NetworkContainerState, offer: PublishedSubnet, node: Node, settings: Settings) -> dict[str, Any]:
    """Tell what a container has, and what its subnet asks of the node."""
    gateway = {"defaultGateway": offer.gateway} if offer.gateway else {}
    container = {
        "id": state.container,
        "assignmentMode": "dynamic",
        "type": "vnet",
        "primaryIP": state.primary,
        "subnetName": state.subnet.name,
        "vnetID": state.subnet.network,
        "subnetAddressSpace": offer.space,
        "ipAssignments": [{"name": grant.id, "ip": grant.address} for grant in state.grants],
        "version": state.version,
        "nodeIP": node.internal_address,
        "status": FULL if state.short else "NCUpdateSuccess",
        **gateway,
    }
    return {
        "assignedIPCount": len(state.grants),
        "scaler": {
            "batchSize": offer.scaler.batch,
            "requestThresholdPercent": offer.scaler.buffer,
            "releaseThresholdPercent": offer.scaler.buffer + 100,
            "maxIPCount": settings.node_maximum,
        },
        "status": "Updating" if state.short else "Updated",
        "networkContainers": [container],
    }


def told_already(config: NodeNetworkConfig, state: NetworkContainerState, node: Node, offer: PublishedSubnet) -> bool:
    """Tell whether an NNC's status shows this state.

    A scaler that has changed is worth a write only for a foreign agent: ours reads the ClusterSubnet.
    """
    status = config.status
    if len(status.network_containers) != 1:
        return False
    shown = status.network_containers[0]
    return (
        (shown.id, shown.version, shown.primary_ip) == (state.container, state.version, state.primary)
        and [each.name for each in shown.ip_assignments] == [grant.id for grant in state.grants]
        and (shown.status == FULL, status.status) == ((True, "Updating") if state.short else (False, "Updated"))
        and shown.node_ip == node.internal_address
        and (shown.subnet_address_space, shown.default_gateway) == (offer.space, offer.gateway)
        and (agent_report(config) is not None or _scaler(status.scaler) == offer.scaler)
    )


def _scaler(shown: NodeScaler) -> Scaler:
    return Scaler(shown.batch_size, shown.request_threshold_percent)


def _reported(report: AgentReport) -> DemandReport:
    return DemandReport(demand=report.demand, waiting=report.waiting, batch=report.batch, version=report.version)


def _annotations(record: NetworkContainerRecord) -> dict[str, str]:
    """Repeat the words of a machine's agent; another's would keep it from taking the container."""
    if record.report is None:
        return {}
    told = AgentReport(
        demand=record.report.demand,
        waiting=record.report.waiting,
        batch=record.report.batch,
        rested_seconds=record.rested,
        boot_id=record.boot_id or "",
        version=record.report.version,
        container=record.state.container,
    )
    return {AGENT_ANNOTATION: msgspec.json.encode(told).decode()}
