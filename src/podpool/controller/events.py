"""What the controller tells people, as Events: each sentence once, with what to do about it."""

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, ClusterSubnet, NodeNetworkConfig
from podpool.api.builtin import NODES, Node, ObjectReference
from podpool.kube.events import EventRecorder, object_reference
from podpool.ledger.messages import NetworkContainerRecord, NetworkContainerState, SubnetName


class ControllerEvents:
    """Tells about Nodes, ClusterSubnets and NNCs; it costs the teller nothing."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def short(self, node: Node, state: NetworkContainerState) -> None:
        """A node asked for more than its subnet has."""
        held = len(state.grants)
        self._recorder.tell(
            object_reference(NODES, node),
            reason="SubnetShort",
            action="Grant",
            note=f"subnet {state.subnet} gave {held} of {held + state.short} addresses: the rest follows when others"
            f" give some back; if Pods wait, make the subnet larger (`podpool ledger subnet grow`)",
            warning=True,
        )

    def refused(self, node: Node, why: str) -> None:
        """The ledger does not serve a node at all."""
        self._recorder.tell(
            object_reference(NODES, node), reason="AddressesRefused", action="Grant", note=f"no addresses: {why}", warning=True
        )

    def mislabelled(self, node: Node, why: str) -> None:
        """A node's label names no subnet that it can be on."""
        self._recorder.tell(object_reference(NODES, node), reason="SubnetLabel", action="Place", note=why, warning=True)

    def override_refused(self, subnet: ClusterSubnet, why: str) -> None:
        """A person's scaler cannot be used."""
        self._recorder.tell(
            object_reference(CLUSTER_SUBNETS, subnet), reason="ScalerRefused", action="Override", note=why, warning=True
        )

    def given_up(self, record: NetworkContainerRecord) -> None:
        """The container of a Node that is gone was closed."""
        gone = ObjectReference(api_version=NODES.api_version, kind=NODES.kind, name=record.node, uid=record.node_uid)
        self._recorder.tell(
            gone,
            reason="NodeGone",
            action="Close",
            note=f"the Node is gone: container {record.state.container} with {len(record.state.grants)} addresses"
            f" goes back to subnet {record.state.subnet}",
        )

    def mended(self, config: NodeNetworkConfig, what: str) -> None:
        """Something that nobody else would have put in order."""
        self._recorder.tell(object_reference(NODE_NETWORK_CONFIGS, config), reason="Mended", action="Mend", note=what)

    def braked(self, subnet: SubnetName, *, namespace: str, why: str) -> None:
        """Many nodes were lost at once: nothing is given up before somebody agrees."""
        about = ObjectReference(
            api_version=CLUSTER_SUBNETS.api_version, kind=CLUSTER_SUBNETS.kind, namespace=namespace, name=subnet.name
        )
        self._recorder.tell(about, reason="NodesLost", action="Brake", note=why, warning=True)
