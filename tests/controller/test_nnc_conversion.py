"""Conversions between NNCs and ledger messages."""

from typing import Any

import msgspec
import pytest

from podpool.api.azure import AGENT_ANNOTATION, FINALIZER, NodeNetworkConfig, agent_report
from podpool.api.builtin import Node
from podpool.controller.nnc_conversion import (
    build_nnc,
    build_status,
    reconcile_item,
    status_is_current,
    subnet_label_error,
    subnet_of,
)
from podpool.controller.scaler_policy import PublishedSubnet
from podpool.controller.settings import FORMER_SUBNET_LABEL, SUBNET_LABEL, ControllerSettings, parse_subnet
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
    nc_id="c1",
    subnet=SUBNET,
    version=7,
    primary="10.0.0.4",
    grants=(Grant(id="g1", address="10.0.0.5"),),
)
PUBLISHED = PublishedSubnet(
    address_space="10.0.0.0/16", gateway="10.0.0.1", scaler=Scaler(8, 25), exhausted=False, cooldown=30.0, nodes=1
)


def nnc(**parts: Any) -> NodeNetworkConfig:  # noqa: ANN401  fields as JSON
    return msgspec.convert({"metadata": {"name": "n1", "namespace": "kube-system"}} | parts, NodeNetworkConfig)


def with_status(status: dict[str, Any]) -> NodeNetworkConfig:
    return nnc(status=status)


def test_a_request_is_sent_unchanged() -> None:
    report = '{"demand":5,"cooledSeconds":3.5,"bootID":"b1","version":6,"batch":16}'
    item = reconcile_item(
        nnc(
            metadata={"name": "n1", "annotations": {AGENT_ANNOTATION: report}},
            spec={"requestedIPCount": 15, "ipsNotInUse": ["g9"]},
        ),
        node_uid="u1",
        nc="c1",
        subnet=SUBNET,
        settings=Settings(),
    )
    assert (15, ("g9",), 3.5, "b1") == (item.wanted, item.released, item.cooled_seconds, item.boot_id)
    assert DemandReport(demand=5, batch=16, version=6) == item.report


@pytest.mark.parametrize(("requested", "wanted"), [(-3, 0), (0, 0), (250, 250), (9999, 250)])
def test_a_request_is_limited_to_the_node_maximum(requested: int, wanted: int) -> None:
    item = reconcile_item(
        nnc(spec={"requestedIPCount": requested}), node_uid="u1", nc=None, subnet=SUBNET, settings=Settings()
    )
    assert (wanted, None, None) == (item.wanted, item.report, item.boot_id)


def test_a_report_that_cannot_be_read_is_as_if_not_with_status() -> None:
    assert agent_report(nnc(metadata={"annotations": {AGENT_ANNOTATION: "{"}})) is None


def test_a_status_has_all_that_a_third_party_agent_needs() -> None:
    status = with_status(build_status(STATE, PUBLISHED, NODE, Settings())).status
    nc = status.network_containers[0]
    assert (8, 25, 125, 250) == (
        status.scaler.batch_size,
        status.scaler.request_threshold_percent,
        status.scaler.release_threshold_percent,
        status.scaler.max_ip_count,
    )
    assert ("c1", "10.0.0.4", "10.0.0.0/16", "10.0.0.1", 7) == (
        nc.id,
        nc.primary_ip,
        nc.subnet_address_space,
        nc.default_gateway,
        nc.version,
    )
    assert [("g1", "10.0.0.5")] == [(each.name, each.ip) for each in nc.ip_assignments]
    assert (1, "NCUpdateSuccess", "10.9.0.4") == (status.assigned, nc.status, nc.node_ip)


@pytest.mark.parametrize(
    ("state", "current"),
    [
        (STATE, True),
        (msgspec.structs.replace(STATE, version=8), False),
        (msgspec.structs.replace(STATE, version=6), False),
        (msgspec.structs.replace(STATE, shortage=3), False),
        (msgspec.structs.replace(STATE, nc_id="c2"), False),
    ],
)
def test_a_status_is_outdated_if_version_shortage_or_nc_differ(state: NetworkContainerState, current: bool) -> None:
    assert current == status_is_current(
        with_status(build_status(STATE, PUBLISHED, NODE, Settings())), state, NODE, PUBLISHED, Settings()
    )


def test_a_grown_subnet_is_written_again() -> None:
    """Agents would otherwise use a prefix without the new addresses."""
    shown = with_status(build_status(STATE, PUBLISHED, NODE, Settings()))
    grown = msgspec.structs.replace(PUBLISHED, address_space="10.0.0.0/15")
    assert not status_is_current(shown, STATE, NODE, grown, Settings())


def test_the_max_buffer_is_in_the_scaler_and_a_changed_one_is_written() -> None:
    """It is a batch above the buffer at least, which a ClusterSubnet may raise."""
    wide = Settings(max_buffer=300)
    shown = with_status(build_status(STATE, PUBLISHED, NODE, wide))
    assert 300 == shown.status.scaler.release_threshold_percent
    assert status_is_current(shown, STATE, NODE, PUBLISHED, wide)
    assert not status_is_current(shown, STATE, NODE, PUBLISHED, Settings())
    assert not status_is_current(shown, STATE, NODE, PUBLISHED, Settings(max_buffer=300, node_maximum=100))
    raised = msgspec.structs.replace(PUBLISHED, scaler=Scaler(8, 350))
    assert 450 == with_status(build_status(STATE, raised, NODE, wide)).status.scaler.release_threshold_percent


def test_a_removed_status_is_written_again() -> None:
    assert not status_is_current(nnc(), STATE, NODE, PUBLISHED, Settings())


def test_the_nnc_of_a_new_node_requests_nothing() -> None:
    built = build_nnc(NODE, namespace="kube-system", record=None)
    assert {"requestedIPCount": 0} == built["spec"]
    assert [FINALIZER] == built["metadata"]["finalizers"]
    owner = built["metadata"]["ownerReferences"][0]
    assert ("Node", "n1", "u1", True) == (owner["kind"], owner["name"], owner["uid"], owner["controller"])


def test_the_nnc_of_a_kept_nc_has_the_recorded_request() -> None:
    record = NetworkContainerRecord(
        state=STATE,
        node="n1",
        node_uid="u0",
        boot_id="b1",
        wanted=31,
        released=("g9",),
        cooled_seconds=2.0,
        report=DemandReport(demand=20, version=7),
    )
    built = msgspec.convert(build_nnc(NODE, namespace="kube-system", record=record), NodeNetworkConfig)
    assert (31, ("g9",)) == (built.spec.requested, built.spec.pending_release)
    report = agent_report(built)
    assert report is not None
    assert (20, 7, "b1", 2.0) == (report.demand, report.version, report.boot_id, report.cooled_seconds)


@pytest.mark.parametrize(("label", "subnet"), [("vnet.other", "other"), ("nonsense", "pods"), (None, "pods")])
def test_the_label_selects_the_subnet(label: str | None, subnet: str) -> None:
    labels = {SUBNET_LABEL: label} if label else {}
    assert subnet == subnet_of(msgspec.convert({"metadata": {"labels": labels}}, Node), SETTINGS).name


def test_the_label_that_a_kubelet_can_set_is_not_read() -> None:
    def node(**labels: str) -> Node:
        return msgspec.convert({"metadata": {"name": "n1", "labels": labels}}, Node)

    former = node(**{FORMER_SUBNET_LABEL: "vnet.other"})
    assert "pods" == subnet_of(former, SETTINGS).name
    assert f"must set {SUBNET_LABEL}" in subnet_label_error(former)
    assert "" == subnet_label_error(node(**{FORMER_SUBNET_LABEL: "vnet.other", SUBNET_LABEL: "vnet.other"}))


@pytest.mark.parametrize("text", ["", "pods", ".pods", "vnet."])
def test_a_subnet_name_has_a_network_and_a_name(text: str) -> None:
    assert SubnetName(network="vnet", name="a.b") == parse_subnet("vnet.a.b", what="--subnet")
    with pytest.raises(InvalidInput, match="--subnet .* NETWORK.SUBNET"):
        parse_subnet(text, what="--subnet")
