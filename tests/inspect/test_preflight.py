"""Preflight finds what would keep podpool from working, and names a remedy."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from podpool.api.admission import admission_manifests
from podpool.api.crds import crd_manifests
from podpool.api.meta import KeyedObject, ObjectIdentity
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.controller.settings import FORMER_SUBNET_LABEL, SUBNET_LABEL
from podpool.core.scaling import Scaler
from podpool.inspect.preflight import objects as o
from podpool.inspect.preflight.cluster_checks import (
    check_admission,
    check_clock,
    check_crds,
    check_nodes,
    check_other_cnis,
    check_version,
)
from podpool.inspect.preflight.node_files import NodePaths, check_node_files
from podpool.inspect.preflight.overlaps import check_overlaps
from podpool.inspect.preflight.permissions import check_permissions, required_permissions
from podpool.inspect.preflight.report import Severity
from podpool.inspect.preflight.snapshot import (
    ClockReading,
    LedgerReading,
    PreflightSnapshot,
    RawCrd,
    Read,
    read_preflight_snapshot,
)
from podpool.inspect.preflight.subnet_checks import check_ledger, check_subnets
from podpool.inspect.view_models import InspectedPod
from podpool.kube.client import KubeClient
from podpool.ledger.admin_messages import ClusterUsage, Occupancy, SubnetDetails
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import SubnetName, SubnetSpec, SubnetState
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request, Response, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from podpool.inspect.preflight.report import PreflightFinding

NONE = Read[Any](value=())
EMPTY = PreflightSnapshot(
    version="v1.36.3",
    clock=ClockReading(),
    cluster=Read(value="uid"),
    nodes=NONE,
    pods=NONE,
    crds=NONE,
    services=NONE,
    service_ranges=NONE,
    nads=NONE,
    daemon_sets=NONE,
    policies=NONE,
)
OK, INFO, WARNING, ERROR, UNKNOWN = Severity


def snapshot(**values: Any) -> PreflightSnapshot:  # noqa: ANN401  fields of the snapshot
    """Return a snapshot; a tuple is what was read."""
    read = {name: Read(value=each) if isinstance(each, tuple) else each for name, each in values.items()}
    return msgspec.structs.replace(EMPTY, **read)


def machine(name: str, **status: Any) -> o.Machine:  # noqa: ANN401  fields of the Node
    plain = {"nodeInfo": {"bootID": f"boot-{name}"}, **status.pop("status", {})}
    labels = {"labels": status.pop("labels", {})}
    return msgspec.convert({"metadata": {"name": name, **labels}, "status": plain, "spec": status}, o.Machine)


def subnet(
    name: str, *, capacity: int, reserved: int = 0, own: int = 0, frozen: bool = False, draining: bool = False
) -> SubnetDetails:
    network, _, short = name.partition(".")
    full = SubnetState(
        subnet=SubnetName(network=network, name=short),
        revision=1,
        timestamp="",
        cidr="10.0.0.0/24",
        capacity=capacity,
        reserved=reserved,
        cooldown=30,
        scaler=Scaler(batch=16, buffer=50),
        frozen=frozen,
        draining=draining,
    )
    spec = SubnetSpec(network=network, name=short, cidr="10.0.0.0/24")
    usage = (ClusterUsage(cluster="uid", network_containers=1, held=own),) if own else ()
    return SubnetDetails(state=full, spec=spec, clusters=usage)


def ledger(*subnets: SubnetDetails, members: tuple[str, ...] = ()) -> LedgerReading:
    by_name = {str(each.state.subnet): each for each in subnets}
    occupancies = {name: Occupancy(revision=1, cidrs=(), members=members) for name in by_name}
    return LedgerReading(subnets=by_name, occupancies=occupancies)


def shown(found: Iterable[PreflightFinding]) -> list[tuple[Severity, str]]:
    return [(each.severity, each.message) for each in found]


def severities(found: Iterable[PreflightFinding]) -> list[Severity]:
    return [each.severity for each in found]


class TestCluster:
    @pytest.mark.parametrize(
        ("version", "severity"),
        [
            ("v1.36.3", OK),
            ("v1.30.0-eks-1", OK),
            ("v1.29.9", WARNING),
            ("", WARNING),
            ("v2.0", WARNING),
            ("\x1b", WARNING),
        ],
    )
    def test_the_oldest_version_is_the_first_with_admission_policies(self, version: str, severity: Severity) -> None:
        assert [severity] == severities(check_version(snapshot(version=version)))

    @pytest.mark.parametrize(
        ("remote", "severity"),
        [
            (100.0, OK),
            (104.0, OK),
            (97.0, OK),
            (107.0, WARNING),
            (94.0, WARNING),
            (140.0, ERROR),
            (60.0, ERROR),
            (None, INFO),
        ],
    )
    def test_clocks_differ_by_less_than_the_clock_error(self, remote: float | None, severity: Severity) -> None:
        """A Date header has whole seconds, and the answer took half a second."""
        reading = ClockReading(remote=remote, before=100.2, after=100.7)
        assert severity is check_clock("clock", "server", reading).severity

    def test_a_crd_that_is_missing_older_or_not_established_is_found(self) -> None:
        wanted = list(crd_manifests())
        installed = [_crd(each) for each in wanted]
        assert {OK} == set(severities(check_crds(snapshot(crds=tuple(installed)))))
        assert [WARNING] * len(wanted) == severities(check_crds(snapshot()))
        schema = wanted[0]["spec"]["versions"][0] | {"schema": {"openAPIV3Schema": {"type": "object"}}}
        installed[0] = _crd(wanted[0], versions=[schema])
        installed[1] = _crd(wanted[1], versions=[])
        installed[2] = msgspec.structs.replace(installed[2], status={})
        found = shown(check_crds(snapshot(crds=tuple(installed))))
        assert [
            (WARNING, "differs from the one of this version of podpool"),
            (WARNING, "does not serve version v1alpha1"),
            (WARNING, "is not established"),
        ] == found[:3]

    def test_a_crd_of_any_shape_is_compared(self) -> None:
        for spec in ({}, {"versions": 1}, {"versions": [1]}, {"versions": [{"name": "v1alpha", "served": True}]}):
            odd = tuple(msgspec.structs.replace(_crd(each), spec=spec) for each in crd_manifests())
            assert {WARNING} == set(severities(check_crds(snapshot(crds=odd))))

    def test_missing_admission_policies_are_named(self) -> None:
        policies = tuple(
            KeyedObject(metadata=ObjectIdentity(name=each["metadata"]["name"])) for each in admission_manifests()
        )
        assert [OK] == severities(check_admission(snapshot(policies=policies)))
        ((severity, message),) = shown(check_admission(snapshot()))
        assert severity is WARNING
        assert message.startswith("not installed: podpool-agent-nodenetworkconfigs, ")

    def test_nodes_have_boot_ids_of_their_own(self) -> None:
        assert [OK] == severities(check_nodes(snapshot(nodes=(machine("a"), machine("b")))))
        same = {"nodeInfo": {"bootID": "boot-a"}}
        found = shown(check_nodes(snapshot(nodes=(machine("a"), machine("b", status=same)))))
        assert [(WARNING, "a, b have one boot ID, boot-a: they are containers of one machine")] == found
        absent = tuple(machine(f"n{number}", status={"nodeInfo": {}}) for number in range(5))
        assert [(ERROR, "no boot ID reported: n0, n1, n2 and 2 more")] == shown(check_nodes(snapshot(nodes=absent)))
        assert [WARNING] == severities(check_nodes(snapshot()))

    def test_machines_that_podpool_does_not_serve_are_named(self) -> None:
        odd = {
            "bootID": "x",
            "operatingSystem": "windows",
            "architecture": "mips",
            "containerRuntimeVersion": "docker://1",
        }
        known = {
            "bootID": "y",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "containerRuntimeVersion": "containerd://2.1",
        }
        nodes = (machine("a", status={"nodeInfo": odd}), machine("b", status={"nodeInfo": known}))
        assert [
            (WARNING, "not Linux, not served: a (windows)"),
            (INFO, "the plugin in C is not built for: a (mips); the one in Python is used"),
            (INFO, "neither containerd nor CRI-O: a (docker://1); lost DELs are found by Pods only"),
        ] == shown(check_nodes(snapshot(nodes=nodes)))

    def test_limits_and_addresses_of_nodes(self) -> None:
        status = {"allocatable": {"pods": "300"}, "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}
        nodes = (machine("a", status=status), machine("b", status=status | {"allocatable": {"pods": "110k"}}))
        assert [
            (WARNING, "more Pods allowed than the 250 addresses of a node (node_maximum): a"),
            (WARNING, "a, b have one address, 192.0.2.1"),
        ] == shown(check_nodes(snapshot(nodes=nodes)))

    def test_other_cni_plugins_are_known_by_their_daemon_sets(self) -> None:
        sets = tuple(
            KeyedObject(metadata=ObjectIdentity(namespace="kube-system", name=name))
            for name in ("kube-proxy", "calico-node", "whereabouts", "podpool-agent")
        )
        found = list(check_other_cnis(snapshot(daemon_sets=sets)))
        assert ["daemonset/kube-system/calico-node", "daemonset/kube-system/whereabouts"] == [
            each.object for each in found
        ]
        assert [OK] == severities(check_other_cnis(snapshot(daemon_sets=sets[:1])))

    @pytest.mark.parametrize("field", ["nodes", "crds", "policies", "daemon_sets"])
    def test_what_cannot_be_read_is_not_checked(self, field: str) -> None:
        unread = snapshot(**{field: Read[Any](value=(), problem="forbidden")})
        checks = {
            "nodes": check_nodes,
            "crds": check_crds,
            "policies": check_admission,
            "daemon_sets": check_other_cnis,
        }
        assert [(UNKNOWN, "not checked: forbidden")] == shown(checks[field](unread))


def _crd(manifest: Any, **spec: Any) -> RawCrd:  # noqa: ANN401  a manifest
    """Return a CRD as the API server has it, with its defaults."""
    conditions = {"conditions": [{"type": "Established", "status": "True"}]}
    name = ObjectIdentity(name=manifest["metadata"]["name"])
    return RawCrd(
        metadata=name, spec={**manifest["spec"], "conversion": {"strategy": "None"}, **spec}, status=conditions
    )


class TestSubnets:
    def test_a_ledger_must_answer_and_accept_the_token(self) -> None:
        assert [OK] == severities(check_ledger(snapshot()))
        assert [OK, INFO] == severities(check_ledger(snapshot(ledger=ledger())))
        rejected, silent = LedgerReading(problem="no", rejected=True), LedgerReading(problem="no answer")
        assert [ERROR] == severities(check_ledger(snapshot(ledger=silent)))
        (found,) = check_ledger(snapshot(ledger=rejected))
        assert (ERROR, "it rejects the token: no") == (found.severity, found.message)
        assert "podpool ledger token create" in found.remedy

    def test_every_nodes_subnet_exists(self) -> None:
        nodes = (machine("a"), machine("b", labels={SUBNET_LABEL: "vnet.other"}))
        read = snapshot(nodes=nodes, ledger=ledger(subnet("vnet.pods", capacity=251)))
        assert [(ERROR, "does not exist in the ledger, and 1 Nodes use it")] == shown(check_subnets(read, default=""))[
            :1
        ]
        assert [OK] == severities(check_subnets(read, default=""))[1:]
        missing = list(check_subnets(read, default="vnet.none"))
        assert ["subnet/vnet.none", "subnet/vnet.other"] == [each.object for each in missing]
        assert "existing: vnet.pods" in missing[0].remedy
        two = snapshot(nodes=nodes[:1], ledger=ledger(subnet("vnet.a", capacity=9), subnet("vnet.b", capacity=9)))
        ((severity, message),) = shown(check_subnets(two, default=""))
        assert (WARNING, "no subnet for a: they have no label node-restriction.kubernetes.io/podpool-subnet") == (
            severity,
            message,
        )

    def test_a_label_that_is_not_read_is_reported(self) -> None:
        """A Node with the former label, or an invalid one, gets addresses of the controller's subnet."""
        labels = ({FORMER_SUBNET_LABEL: "vnet.other"}, {SUBNET_LABEL: "other"})
        nodes = tuple(machine(f"n{number}", labels=each) for number, each in enumerate(labels))
        found = list(check_subnets(snapshot(nodes=nodes, ledger=ledger(subnet("vnet.pods", capacity=251))), default=""))
        assert [("node/n0", WARNING), ("node/n1", WARNING), ("subnet/vnet.pods", OK)] == [
            (each.object, each.severity) for each in found
        ]

    @pytest.mark.parametrize(
        ("capacity", "reserved", "own", "severity"),
        [
            (61, 0, 0, OK),
            (30, 0, 0, WARNING),
            (11, 0, 0, ERROR),
            (61, 55, 0, ERROR),
            (61, 55, 55, OK),
            (12, 0, 0, WARNING),
        ],
    )
    def test_a_subnet_suffices_for_the_nodes_and_pods_there_are(
        self, capacity: int, reserved: int, own: int, severity: Severity
    ) -> None:
        """Ten Pods on two Nodes need 12 addresses, and hold 32 with whole batches; other clusters have the rest."""
        pods = tuple(msgspec.convert({"spec": {"nodeName": "a"}}, InspectedPod) for _ in range(10))
        host = msgspec.convert({"spec": {"nodeName": "a", "hostNetwork": True}}, InspectedPod)
        read = snapshot(
            nodes=(machine("a"), machine("b")),
            pods=(*pods, host),
            ledger=ledger(subnet("vnet.pods", capacity=capacity, reserved=reserved, own=own)),
        )
        assert [severity] == severities(check_subnets(read, default="vnet.pods"))

    def test_a_frozen_or_draining_subnet_grants_nothing(self) -> None:
        stopped = ledger(subnet("vnet.pods", capacity=251, frozen=True, draining=True))
        found = shown(check_subnets(snapshot(ledger=stopped), default="vnet.pods"))
        assert [(ERROR, "is frozen: it grants nothing"), (ERROR, "is draining: it grants nothing")] == found[:2]


class TestOverlaps:
    MEMBERS = ("10.0.0.4-10.0.0.254",)

    def found(self, **values: Any) -> list[tuple[Severity, str]]:  # noqa: ANN401  fields of the snapshot
        reading = ledger(subnet("vnet.pods", capacity=251), members=self.MEMBERS)
        return shown(check_overlaps(snapshot(ledger=reading, **values), subnets={"vnet.pods"}))

    def test_services_nodes_and_pod_cidrs(self) -> None:
        assert [OK] == [each for each, _ in self.found()]
        service = msgspec.convert({"metadata": {"name": "dns"}, "spec": {"clusterIP": "10.0.0.10"}}, o.Service)
        assert [(ERROR, "has addresses of Service dns (10.0.0.10)")] == self.found(services=(service,))
        headless = msgspec.convert({"spec": {"clusterIP": "None"}}, o.Service)
        outside = msgspec.convert({"spec": {"clusterIPs": ["10.96.0.1", "fd00::1"]}}, o.Service)
        assert [OK] == [each for each, _ in self.found(services=(headless, outside))]
        range_ = msgspec.convert(
            {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.0.0.0/16"]}}, o.ServiceRange
        )
        ((severity, message),) = self.found(service_ranges=(range_,))
        assert (ERROR, "has addresses of the Service range kubernetes (10.0.0.0-10.0.255.255)") == (severity, message)
        addresses = {"addresses": [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "a"}]}
        assert [(ERROR, "has addresses of Node a (10.0.0.5)")] == self.found(nodes=(machine("a", status=addresses),))
        excluded = {"addresses": [{"type": "InternalIP", "address": "10.0.0.3"}]}
        assert [OK] == [each for each, _ in self.found(nodes=(machine("a", status=excluded),))]
        assert [WARNING] == [each for each, _ in self.found(nodes=(machine("a", podCIDR="10.0.0.0/24"),))]

    def test_secondary_networks(self) -> None:
        """What a range excludes may be used for anything else, and NADs of one network share a range."""
        node = machine("a", status={"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]})
        own = _nad("one", '"range": "192.0.2.0/24"')
        assert [(ERROR, "has addresses of Node a (192.0.2.9)")] == self.found(nads=(own,), nodes=(node,))
        for more in ('"exclude": ["192.0.2.9"]', '"range_start": "192.0.2.20"', '"range_end": "192.0.2.8"'):
            spared = _nad("one", f'"range": "192.0.2.0/24", {more}')
            assert [OK] == [each for each, _ in self.found(nads=(spared, type(own)()), nodes=(node,))], more
        assert [OK] == [each for each, _ in self.found(nads=(own, _nad("two", '"range": "192.0.2.0/24"')))]
        ((severity, message),) = self.found(nads=(_nad("one", '"range": "10.0.0.0/26"'),))
        assert (ERROR, "has addresses of nad/default/one (10.0.0.0-10.0.0.63)") == (severity, message)

    def test_subnets_of_other_clusters_are_not_compared(self) -> None:
        service = msgspec.convert({"metadata": {"name": "dns"}, "spec": {"clusterIP": "10.0.0.10"}}, o.Service)
        reading = ledger(subnet("vnet.pods", capacity=251), members=self.MEMBERS)
        assert [OK] == severities(check_overlaps(snapshot(ledger=reading, services=(service,)), subnets=set()))

    def test_what_cannot_be_read_is_not_checked(self) -> None:
        unread = Read[Any](value=(), problem="forbidden")
        assert [UNKNOWN, UNKNOWN, OK] == [each for each, _ in self.found(services=unread, nads=unread)]


def _nad(name: str, ipam: str) -> NetworkAttachmentDefinition:
    config = f'{{"cniVersion": "1.0.0", "type": "macvlan", "ipam": {{"type": "whereabouts", {ipam}}}}}'
    plain = {"metadata": {"name": name, "namespace": "default"}, "spec": {"config": config}}
    return msgspec.convert(plain, NetworkAttachmentDefinition)


class TestNodeFiles:
    def paths(self, tmp_path: Path, **values: Any) -> NodePaths:  # noqa: ANN401  fields of NodePaths
        boot_id = tmp_path / "boot_id"
        boot_id.write_text("boot-a\n")
        for name in ("bin", "net.d", "state"):
            (tmp_path / name).mkdir(exist_ok=True)
        mounts = tmp_path / "mounts"
        mounts.write_text(f"none / ext4 rw\nnone {tmp_path}/volatile tmpfs rw\nodd\n")
        usual = {
            "bin_dir": str(tmp_path / "bin"),
            "conf_dir": str(tmp_path / "net.d"),
            "state": str(tmp_path / "state"),
            "cri_sockets": (str(tmp_path / "cri.sock"),),
        }
        return NodePaths(**{**usual, "boot_id": boot_id, "mounts": mounts, **values})

    def test_a_machine_that_is_no_node_is_not_checked(self, tmp_path: Path) -> None:
        assert [INFO] == severities(check_node_files((machine("other"),), self.paths(tmp_path)))
        assert [INFO] == severities(check_node_files((), self.paths(tmp_path, boot_id=tmp_path / "none")))

    def test_a_node_with_runtime_and_directories_is_ready(self, tmp_path: Path) -> None:
        own = machine(socket.gethostname(), status={"nodeInfo": {"bootID": "boot-a"}})
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "cri.sock"))
            assert [OK] == severities(check_node_files((own,), self.paths(tmp_path)))

    def test_every_fault_is_found(self, tmp_path: Path) -> None:
        paths = self.paths(tmp_path, bin_dir=str(tmp_path / "none"), state=str(tmp_path / "volatile" / "podpool"))
        for name in ("00-multus.conf", "05-other.conflist", "20-later.conf", "00-readme.txt"):
            (tmp_path / "net.d" / name).touch()
        assert [
            (WARNING, f"the host name is {socket.gethostname()!r}, and the Node's name a"),
            (WARNING, f"no CRI socket at {tmp_path}/cri.sock: lost DELs are found by Pods only"),
            (WARNING, "does not exist"),
            (WARNING, "the runtime uses 00-multus.conf before 10-podpool.conflist"),
            (ERROR, "is on tmpfs, which a reboot empties: the agent's journal would be lost"),
        ] == shown(check_node_files((machine("a"),), paths))


def test_every_account_of_the_manifests_has_permissions() -> None:
    """The wildcard is not among them: a review of it would only be true for an administrator."""
    needed = required_permissions()
    assert {"podpool-agent", "podpool-controller", "podpool-dashboard"} == set(needed)
    words = {str(each) for each in needed["podpool-agent"]}
    assert {"patch nodes/status", "patch nodenetworkconfigs.acn.azure.com in kube-system"} <= words
    assert not any("*" in each for each in words)


class _Server:
    """A server that answers every request in one way."""

    def __init__(self, status: int, body: bytes = b"", date: str = "") -> None:
        self.response = status, body, date

    async def send(self, request: Request) -> Response:
        status, body, date = self.response
        if not status:
            raise Unreachable("https://api", f"refused {request.path}")
        return Response(status, body, headers={"date": date})


BAD_BODIES = [b"", b"<html>", b"[" * 100_000, b'{"items": 1}', b'{"gitVersion": 1}', b"\xff"]


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_server_that_is_no_api_server_is_reported(body: bytes) -> None:
    server = _Server(200, body, date="a year ago")
    kube, other = KubeClient(server), LedgerClient(server)
    read = asyncio.run(read_preflight_snapshot(kube, other, clock=SystemClock()))
    assert ("", None) == (read.version, read.clock.remote)
    assert read.nodes.problem or not read.nodes.value
    assert read.ledger
    assert read.ledger.problem
    assert UNKNOWN in severities(asyncio.run(check_permissions(kube, namespace="kube-system")))


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_server_that_rejects_everything_is_reported(status: int) -> None:
    server = _Server(status, b"{}")
    read = asyncio.run(read_preflight_snapshot(KubeClient(server), LedgerClient(server), clock=SystemClock()))
    assert read.ledger
    assert all((read.nodes.problem, read.pods.problem, read.cluster.problem, read.ledger.problem))


def test_an_unreachable_server_ends_preflight() -> None:
    with pytest.raises(Unreachable, match="refused /version"):
        asyncio.run(read_preflight_snapshot(KubeClient(_Server(0)), None, clock=SystemClock()))
