"""From objects to messages and back."""

from typing import Any

import msgspec
import pytest

from podpool.api.azure import AGENT_ANNOTATION, FINALIZER, NodeNetworkConfig, agent_report
from podpool.api.builtin import Node
from podpool.controller.convert import config_for, item_of, status_of, subnet_of, told_already
from podpool.controller.scaler_policy import PublishedSubnet
from podpool.controller.settings import SUBNET_LABEL, ControllerSettings, parse_subnet
from podpool.core.errors import InvalidInput
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.ledger.messages import DemandReport, Grant, NetworkContainerRecord, NetworkContainerState, SubnetName

SUBNET = SubnetName(network="vnet", name="pods")
SETTINGS = ControllerSettings(subnet=SUBNET)
NODE = msgspec.convert(
    {
        "metadata": {"name": "n1", "uid": "u1"},
        "status": {"nodeInfo": {"bootID": "b1"}, "addresses": [{"type": "InternalIP", "address": "10.9.0.4"}]},
    },
    Node,
)
STATE = NetworkContainerState(
    container="c1",
    subnet=SUBNET,
    version=7,
    primary="10.0.0.4",
    grants=(Grant(id="g1", address="10.0.0.5"),),
)
OFFER = PublishedSubnet(space="10.0.0.0/16", gateway="10.0.0.1", scaler=Scaler(8, 25), exhausted=False)


def config(**parts: Any) -> NodeNetworkConfig:  # noqa: ANN401  a test's own JSON
    return msgspec.convert({"metadata": {"name": "n1", "namespace": "kube-system"}} | parts, NodeNetworkConfig)


def written(status: dict[str, Any]) -> NodeNetworkConfig:
    return config(status=status)


def test_a_request_is_asked_for_as_it_stands() -> None:
    told = '{"demand":5,"cooledSeconds":3.5,"bootID":"b1","version":6,"batch":16}'
    asked = item_of(
        config(
            metadata={"name": "n1", "annotations": {AGENT_ANNOTATION: told}},
            spec={"requestedIPCount": 15, "ipsNotInUse": ["g9"]},
        ),
        node_uid="u1",
        container="c1",
        subnet=SUBNET,
        settings=Settings(),
    )
    assert (15, ("g9",), 3.5, "b1") == (asked.wanted, asked.released, asked.rested, asked.boot_id)
    assert DemandReport(demand=5, batch=16, version=6) == asked.report


@pytest.mark.parametrize(("requested", "wanted"), [(-3, 0), (0, 0), (250, 250), (9999, 250)])
def test_a_request_edited_by_hand_stays_within_the_node(requested: int, wanted: int) -> None:
    asked = item_of(
        config(spec={"requestedIPCount": requested}), node_uid="u1", container=None, subnet=SUBNET, settings=Settings()
    )
    assert (wanted, None, None) == (asked.wanted, asked.report, asked.boot_id)


def test_a_report_that_cannot_be_read_is_as_if_not_written() -> None:
    assert agent_report(config(metadata={"annotations": {AGENT_ANNOTATION: "{"}})) is None


def test_a_status_has_all_that_a_foreign_agent_needs() -> None:
    shown = written(status_of(STATE, OFFER, NODE, Settings())).status
    container = shown.network_containers[0]
    assert (8, 25, 125, 250) == (
        shown.scaler.batch_size,
        shown.scaler.request_threshold_percent,
        shown.scaler.release_threshold_percent,
        shown.scaler.max_ip_count,
    )
    assert ("c1", "10.0.0.4", "10.0.0.0/16", "10.0.0.1", 7) == (
        container.id,
        container.primary_ip,
        container.subnet_address_space,
        container.default_gateway,
        container.version,
    )
    assert [("g1", "10.0.0.5")] == [(each.name, each.ip) for each in container.ip_assignments]
    assert (1, "NCUpdateSuccess", "10.9.0.4") == (shown.assigned, container.status, container.node_ip)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (STATE, True),
        (msgspec.structs.replace(STATE, version=8), False),
        (msgspec.structs.replace(STATE, version=6), False),
        (msgspec.structs.replace(STATE, short=3), False),
        (msgspec.structs.replace(STATE, container="c2"), False),
    ],
)
def test_a_status_is_written_again_when_version_or_shortness_differ(state: NetworkContainerState, told: bool) -> None:
    assert told == told_already(written(status_of(STATE, OFFER, NODE, Settings())), state, NODE, OFFER)


def test_a_subnet_that_has_grown_is_told_again() -> None:
    """Else agents would go by a prefix that leaves out what is new."""
    shown = written(status_of(STATE, OFFER, NODE, Settings()))
    grown = msgspec.structs.replace(OFFER, space="10.0.0.0/15")
    assert not told_already(shown, STATE, NODE, grown)


def test_a_removed_status_is_written_again() -> None:
    assert not told_already(config(), STATE, NODE, OFFER)


def test_a_new_node_asks_for_nothing() -> None:
    made = config_for(NODE, namespace="kube-system", record=None)
    assert {"requestedIPCount": 0} == made["spec"]
    assert [FINALIZER] == made["metadata"]["finalizers"]
    owner = made["metadata"]["ownerReferences"][0]
    assert ("Node", "n1", "u1", True) == (owner["kind"], owner["name"], owner["uid"], owner["controller"])


def test_a_kept_container_is_asked_for_as_the_ledger_remembers_it() -> None:
    record = NetworkContainerRecord(
        state=STATE,
        node="n1",
        node_uid="u0",
        boot_id="b1",
        wanted=31,
        released=("g9",),
        rested=2.0,
        report=DemandReport(demand=20, version=7),
    )
    made = msgspec.convert(config_for(NODE, namespace="kube-system", record=record), NodeNetworkConfig)
    assert (31, ("g9",)) == (made.spec.requested, made.spec.pending_release)
    report = agent_report(made)
    assert report is not None
    assert (20, 7, "b1", 2.0) == (report.demand, report.version, report.boot_id, report.cooled_seconds)


@pytest.mark.parametrize(("label", "subnet"), [("vnet.other", "other"), ("nonsense", "pods"), (None, "pods")])
def test_a_node_is_on_the_subnet_of_its_label(label: str | None, subnet: str) -> None:
    labels = {SUBNET_LABEL: label} if label else {}
    assert subnet == subnet_of(msgspec.convert({"metadata": {"labels": labels}}, Node), SETTINGS).name


@pytest.mark.parametrize("text", ["", "pods", ".pods", "vnet."])
def test_a_subnet_is_named_by_network_and_name(text: str) -> None:
    assert SubnetName(network="vnet", name="a.b") == parse_subnet("vnet.a.b", what="--subnet")
    with pytest.raises(InvalidInput, match="--subnet .* NETWORK.SUBNET"):
        parse_subnet(text, what="--subnet")
