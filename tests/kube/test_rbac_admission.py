"""What each component may do on a real API server: all it needs, and nothing of another node's."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from parts.api import Api, ApiError
from parts.control_plane import ControlPlane
from parts.polling import until
from tests.kube.cli_manifests import install_crds_with_kubectl, podpool_output
from tests.kube.two_node_cluster import (
    EVENTS,
    HELD,
    HOME,
    LABEL,
    LEASES,
    NNC,
    NNCS,
    NODES,
    POOLS,
    REPORT,
    ROLES,
    SLICES,
    TAINT,
    TAKEN,
    Nodes,
    again,
    event,
    of,
    own_objects,
    refused,
    remove,
    theirs,
    wanted,
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane")]


@pytest.fixture(scope="module")
def installed(started_control_plane: ControlPlane) -> ControlPlane:
    """A cluster with our kinds, accounts and policies, all as printed."""
    install_crds_with_kubectl(started_control_plane)
    started_control_plane.kubectl("apply", "-f", "-", manifest=podpool_output("rbac"))
    unshare(started_control_plane)
    return started_control_plane


def unshare(plane: ControlPlane) -> None:
    """Remove the role for shared ranges."""
    for kind in ("role", "rolebinding"):
        plane.kubectl("delete", "--ignore-not-found", "-n", HOME, kind, "podpool-agent-shared-ranges")


@pytest.fixture
def nodes(installed: ControlPlane, control_plane: ControlPlane) -> Nodes:
    """The nodes, each time with fresh objects."""
    assert installed is control_plane
    return Nodes(control_plane)


@pytest.fixture(params=["with its own roles", "with every right there is"])
def rights(request: pytest.FixtureRequest, installed: ControlPlane) -> Iterator[None]:
    """Roles hold an agent back from most; without them the policies must do it alone."""
    if request.param == "with its own roles":
        yield
        return
    admin, name = installed.admin, "everything-for-agents"
    role = {"metadata": {"name": name}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": EVERY_VERB}]}
    subject = {"kind": "ServiceAccount", "name": "podpool-agent", "namespace": HOME}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    admin.post(ROLES, role)
    admin.post(f"{ROLES[:-1]}bindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    token = installed.accounts.token("podpool-agent", namespace=HOME, node="node-a")
    until(lambda: not refused(installed.api(token).get, "/api/v1/secrets"), "the rights are in force")
    yield
    admin.delete(f"{ROLES[:-1]}bindings/{name}")
    admin.delete(f"{ROLES}/{name}")
    until(lambda: refused(installed.api(token).get, "/api/v1/secrets"), "the rights are gone")


EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
"""Not `share`, which is a right to what belongs to no node."""


class TestAnotherNode:
    @pytest.mark.usefixtures("rights")
    def test_no_writing_verb_reaches_another_nodes_objects(self, nodes: Nodes) -> None:
        for kind, path in theirs("node-b").items():
            before = nodes.plane.admin.get(path)
            for verb, write in writes(nodes.a, path, before).items():
                assert refused(write), f"{verb} {kind}"
            assert before == nodes.plane.admin.get(path), kind

    @pytest.mark.usefixtures("rights")
    def test_nothing_is_made_in_another_nodes_name(self, nodes: Nodes) -> None:
        made = own_objects("node-c") | {NODES: {"metadata": {"name": "node-c"}}}
        for path, body in made.items():
            assert refused(nodes.a.post, path, body), path

    def test_each_agent_gets_the_reason(self, nodes: Nodes) -> None:
        with pytest.raises(ApiError, match="the agent of node node-a may only write its own NodeNetworkConfig"):
            nodes.a.patch(f"{NNCS}/node-b", {"spec": {"requestedIPCount": 1}})
        with pytest.raises(ApiError, match="the name or the annotation podpool.io/node is not its node's"):
            nodes.b.patch(f"{POOLS}/node-a-10.0.0.0-24", {"spec": {"allocations": {}}})

    def test_a_token_that_names_no_node_writes_nothing(self, nodes: Nodes) -> None:
        loose = nodes.plane.api(nodes.plane.accounts.token("podpool-agent", namespace=HOME))
        own = theirs("node-a")
        own["NodeSlices"] += "/status"
        for kind, path in own.items():
            with pytest.raises(ApiError, match="the agent's token names no node"):
                loose.patch(path, REPORT if kind == "NodeSlices" else LABEL)


def writes(api: Api, path: str, obj: dict[str, Any]) -> Mapping[str, Callable[[], object]]:
    """Every way to write to an object, each with a change that its own agent may make, or its controller."""
    found: dict[str, Callable[[], object]] = {
        "delete": partial(api.delete, path),
        "delete all": partial(api.delete, path.rpartition("/")[0]),
    }
    status = {"/status": {"status": {"assignedIPCount": 9}}} if obj["kind"] == NNC else {}
    head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}}
    for sub, change in {**wanted(obj), **status}.items():
        ((part, fields),) = change.items()
        place, whole = path + sub, {**obj.get(part, {}), **fields}
        operations = [{"op": "add", "path": f"/{part}", "value": whole}]
        found |= {
            f"replace {sub}": partial(api.put, place, {**obj, part: whole}),
            f"merge {sub}": partial(api.patch, place, change),
            f"change {sub}": partial(api.patch, place, operations, media="application/json-patch+json"),
            f"apply {sub}": partial(
                api.patch,
                f"{place}?fieldManager=x&force=true",
                {**head, **change},
                media="application/apply-patch+yaml",
            ),
        }
    return found


class TestItsOwn:
    def test_an_agent_writes_what_it_has_to(self, nodes: Nodes) -> None:
        for path in theirs("node-a").values():
            for sub, change in wanted(nodes.plane.admin.get(path)).items():
                ((part, fields),) = change.items()
                kept = nodes.a.patch(path + sub, change)[part]
                assert fields == {each: kept[each] for each in fields} or sub == "/status"
        report = {"metadata": {"annotations": {"podpool.io/agent": "{}"}}, "spec": {"ipsNotInUse": ["g"]}}
        assert ["g"] == nodes.a.patch(theirs("node-a")[NNC], report)["spec"]["ipsNotInUse"]
        nodes.a.post(EVENTS, event("node-a", f"node-a.{uuid4()}"))

    @pytest.mark.parametrize("kind", ["IPPool", "Lease"])
    def test_an_agent_notes_range_and_node_of_its_slices(self, nodes: Nodes, kind: str) -> None:
        place = theirs("node-a")[kind]
        notes = {"labels": {"podpool.io/node-uid": "u2"}, "annotations": {"podpool.io/range": "10.0.0.0/8"}}
        kept = nodes.a.patch(place, {"metadata": notes})["metadata"]
        assert (notes["labels"], "10.0.0.0/8") == (kept["labels"], kept["annotations"]["podpool.io/range"])
        assert refused(nodes.a.patch, place, {"metadata": {"annotations": {"other": "x"}}})
        assert refused(nodes.b.patch, place, {"metadata": notes})

    def test_an_agent_makes_and_deletes_what_belongs_to_its_slices(self, nodes: Nodes) -> None:
        for path in (POOLS, LEASES):
            body = own_objects("node-a")[path]
            place = f"{path}/{body['metadata']['name']}"
            nodes.a.delete(place)
            nodes.a.post(path, body)
            for name in ("other-10.0.0.0-24", "node-a-10.0.1.0-24", "10.0.0.0-24"):
                wrong = {**body, "metadata": {**body["metadata"], "name": name}}
                assert refused(nodes.a.post, path, wrong), name
            assert refused(nodes.b.delete, place)

    def test_an_agent_takes_over_the_pool_that_a_plugin_of_whereabouts_made_for_its_slice(self, nodes: Nodes) -> None:
        own = {"metadata": {"annotations": {"podpool.io/node": "node-a"}}}
        body = own_objects("node-a")[POOLS]
        bare = {**body, "metadata": {"name": body["metadata"]["name"]}}
        again(nodes.plane.admin, POOLS, bare)
        place = f"{POOLS}/{bare['metadata']['name']}"
        assert refused(nodes.a.patch, place, TAKEN)
        assert refused(nodes.b.patch, place, {"metadata": {"annotations": {"podpool.io/node": "node-b"}}})
        assert "node-a" == nodes.a.patch(place, {**own, **TAKEN})["metadata"]["annotations"]["podpool.io/node"]

    def test_an_agent_takes_its_taint_off_again(self, nodes: Nodes) -> None:
        node = theirs("node-a")["Node"]
        tainted = nodes.a.patch(node, wanted(nodes.a.get(node))[""])["spec"]["taints"]
        others = [each for each in tainted if each != TAINT]
        assert len(others) == len(tainted) - 1
        assert others == nodes.a.patch(node, {"spec": {"taints": others}})["spec"].get("taints", [])

    def test_an_agent_reads_what_it_has_to(self, nodes: Nodes) -> None:
        for path in (
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a",
            f"{NODES}/node-a",
            f"{NNCS}?fieldSelector=metadata.name%3Dnode-a",
            f"{SLICES}?fieldSelector=metadata.name%3Dnode-a",
            f"/api/v1/namespaces/{HOME}/configmaps?fieldSelector=metadata.name%3Dpodpool-slice-inventory",
            f"{POOLS}/node-a-10.0.0.0-24",
            f"{LEASES}/node-a-10.0.0.0-24",
            f"/apis/acn.azure.com/v1alpha1/namespaces/{HOME}/clustersubnets",
            f"/apis/acn.azure.com/v1alpha1/namespaces/{HOME}/clustersubnetstates",
        ):
            assert nodes.a.get(path)

    @pytest.mark.usefixtures("rights")
    @pytest.mark.parametrize(
        ("kind", "sub", "change"),
        [
            (NNC, "", {"metadata": {"finalizers": []}}),
            (NNC, "", {"metadata": {"annotations": {"podpool.io/inventory": "9"}}}),
            (NNC, "", {"metadata": {"ownerReferences": [{**of("v1", "Node"), "name": "x", "uid": "x"}]}}),
            (NNC, "/status", {"status": {"assignedIPCount": 9}}),
            ("IPPool", "", {"metadata": {"annotations": {"podpool.io/node": "node-b"}}}),
            ("IPPool", "", {"metadata": {"annotations": None}}),
            ("IPPool", "", {"spec": {"range": "10.0.0.0/8"}}),
            ("Lease", "", {"metadata": {"annotations": {"podpool.io/node": "node-b"}}}),
            ("Lease", "", {"metadata": {"annotations": {"podpool.io/slice": "10.0.1.0/24"}}}),
            ("NodeSlices", "", {"spec": {"nodeUID": "other"}}),
            ("NodeSlices", "", LABEL),
            ("NodeSlices", "", {"metadata": {"finalizers": ["podpool.io/other"]}}),
            ("Node", "", {"spec": {"unschedulable": True}}),
            ("Node", "", {"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}),
            ("Node", "", {"spec": {"taints": [{"key": "podpool.io/addresses-short", "effect": "NoExecute"}]}}),
            ("Node", "", LABEL),
            ("Node", "/status", LABEL),
            ("Node", "/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            ("Node", "/status", {"status": {"capacity": {"cpu": "99"}}}),
        ],
    )
    def test_of_its_own_it_writes_nothing_else(self, nodes: Nodes, kind: str, sub: str, change: dict[str, Any]) -> None:
        path = theirs("node-a")[kind]
        before = nodes.plane.admin.get(path)
        assert refused(nodes.a.patch, path + sub, change)
        assert before == nodes.plane.admin.get(path)

    @pytest.mark.usefixtures("rights")
    def test_it_neither_makes_nor_deletes_its_own(self, nodes: Nodes) -> None:
        for kind, path in theirs("node-a").items():
            assert kind in {"IPPool", "Lease"} or refused(nodes.a.delete, path), path
        made = own_objects("node-a") | {NODES: {"metadata": {"name": "node-a"}}}
        for path in (NNCS, SLICES, NODES):
            assert refused(nodes.a.post, path, made[path]), path


class TestController:
    def test_it_makes_and_ends_what_agents_write(self, nodes: Nodes) -> None:
        admin = nodes.plane.admin
        controller = nodes.plane.api(nodes.plane.accounts.token("podpool-controller", namespace=HOME))
        uid = admin.get(f"{NODES}/node-a")["metadata"]["uid"]
        owner = {**of("v1", "Node"), "name": "node-a", "uid": uid, "controller": True, "blockOwnerDeletion": True}
        for path, body in own_objects("node-a").items():
            name = body["metadata"]["name"]
            if path == LEASES:
                controller.delete(f"{path}/{name}")
                continue
            remove(admin, f"{path}/{name}")
            body["metadata"]["ownerReferences"] = [owner]
            controller.post(path, body)
            if path == EVENTS:
                continue
            controller.patch(f"{path}/{name}", {"metadata": {"finalizers": None, "labels": {"a": "b"}}})
            controller.delete(f"{path}/{name}")

    def test_it_does_not_write_specs_of_subnets_nor_nodes(self, nodes: Nodes) -> None:
        controller = nodes.plane.api(nodes.plane.accounts.token("podpool-controller", namespace=HOME))
        subnets = f"/apis/acn.azure.com/v1alpha1/namespaces/{HOME}/clustersubnets"
        again(nodes.plane.admin, subnets, {**of("acn.azure.com/v1alpha1", "ClusterSubnet"), "metadata": {"name": "s"}})
        assert refused(controller.patch, f"{subnets}/s", {"spec": {"scaler": {"batch": 8}}})
        assert refused(controller.patch, f"{NODES}/node-a", LABEL)
        assert (
            1
            == controller.patch(f"{subnets}/s/status", {"status": {"scaler": {"batch": 1}}})["status"]["scaler"][
                "batch"
            ]
        )


@pytest.fixture
def sharing(nodes: Nodes) -> Iterator[Nodes]:
    """The nodes, with the right to what belongs to none of them; the pool `shared` is such."""
    again(nodes.plane.admin, POOLS, pool("shared"))
    for name in ("others", "whereabouts"):
        again(nodes.plane.admin, LEASES, {"metadata": {"name": name}})
    until(lambda: refused(nodes.a.patch, f"{POOLS}/shared", TAKEN), "there is no such right yet")
    nodes.plane.kubectl("apply", "-f", "-", manifest=podpool_output("rbac", "--shared-ranges"))
    until(lambda: not refused(nodes.a.patch, f"{POOLS}/shared", TAKEN), "the right is in force")
    yield nodes
    unshare(nodes.plane)
    until(lambda: refused(nodes.a.patch, f"{POOLS}/shared", TAKEN), "the right is gone")


def pool(name: str, **meta: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
    head = {"metadata": {"name": name, **meta}, **of("whereabouts.cni.cncf.io/v1alpha1", "IPPool")}
    return {**head, "spec": {"range": "10.1.0.0/16", "allocations": {}}}


class TestSharedRanges:
    def test_an_agent_does_what_a_plugin_of_whereabouts_does(self, sharing: Nodes) -> None:
        agent, reservations = sharing.a, POOLS.replace("ippools", "overlappingrangeipreservations")
        lease = {**of("coordination.k8s.io/v1", "Lease"), "metadata": {"name": "whereabouts"}}
        taken = {
            **of("whereabouts.cni.cncf.io/v1alpha1", "OverlappingRangeIPReservation"),
            "metadata": {"name": "10.1.0.1"},
            "spec": {"podref": "default/p"},
        }
        made: dict[str, dict[str, Any]] = {LEASES: lease, POOLS: pool("new"), reservations: taken}
        for path, body in made.items():
            remove(sharing.plane.admin, f"{path}/{body['metadata']['name']}")
            agent.post(path, body)
        agent.patch(f"{LEASES}/whereabouts", HELD)
        agent.patch(f"{POOLS}/new", TAKEN)
        agent.delete(f"{reservations}/10.1.0.1")

    @pytest.mark.usefixtures("rights")
    def test_what_is_anothers_stays_so(self, sharing: Nodes) -> None:
        assert refused(sharing.a.patch, f"{LEASES}/others", HELD)
        assert refused(sharing.a.patch, f"{LEASES}/node-b-10.0.0.0-24", HELD)
        assert refused(sharing.a.patch, f"{POOLS}/node-b-10.0.0.0-24", TAKEN)
        assert refused(sharing.a.delete, f"{POOLS}/shared")
        assert refused(sharing.a.delete, f"{LEASES}/whereabouts")
        assert refused(sharing.a.post, POOLS, pool("new-one", annotations={"podpool.io/node": "node-a"}))
        assert refused(sharing.a.patch, f"{POOLS}/shared", {"metadata": {"annotations": {"podpool.io/node": "node-a"}}})


READ = ("get", "list", "watch")
RIGHTS: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "podpool-agent": {
        "default": {
            "nodes": (*READ, "patch"),
            "nodes/status": ("patch",),
            "pods": READ,
            "nodeslices.podpool.io": READ,
            "nodeslices/status.podpool.io": ("patch",),
            "events.events.k8s.io": ("create", "patch"),
        },
        HOME: {
            "nodenetworkconfigs.acn.azure.com": (*READ, "patch"),
            "clustersubnets.acn.azure.com": READ,
            "clustersubnetstates.acn.azure.com": READ,
            "ippools.whereabouts.cni.cncf.io": (*READ, "create", "patch", "delete"),
            "leases.coordination.k8s.io": ("get", "create", "patch", "delete"),
            "configmaps podpool-slice-inventory": READ,
        },
    },
    "podpool-controller": {
        "default": {
            "nodes": READ,
            "nodes/finalizers": ("update",),
            "pods": READ,
            "namespaces kube-system": ("get",),
            "network-attachment-definitions.k8s.cni.cncf.io": READ,
            "nodeslices.podpool.io": (*READ, "create", "patch", "delete"),
            "events.events.k8s.io": ("create", "patch"),
        },
        HOME: {
            "nodenetworkconfigs.acn.azure.com": (*READ, "create", "patch", "delete"),
            "nodenetworkconfigs/status.acn.azure.com": ("patch",),
            "clustersubnets.acn.azure.com": (*READ, "create"),
            "clustersubnetstates.acn.azure.com": (*READ, "create"),
            "clustersubnets/status.acn.azure.com": ("patch",),
            "clustersubnetstates/status.acn.azure.com": ("patch",),
            "ippools.whereabouts.cni.cncf.io": (*READ, "create", "patch", "delete"),
            "nodeslicepools.whereabouts.cni.cncf.io": (*READ, "create", "patch", "delete"),
            "overlappingrangeipreservations.whereabouts.cni.cncf.io": (*READ, "delete"),
            "leases.coordination.k8s.io": ("create", "get", "delete"),
            "leases.coordination.k8s.io podpool-controller": ("get", "patch"),
            "configmaps": ("create",),
            "configmaps podpool-slice-inventory": (*READ, "patch"),
        },
    },
    "podpool-dashboard": {
        "default": {
            "nodes": READ,
            "pods": READ,
            "namespaces kube-system": ("get",),
            "events.events.k8s.io": READ,
            "nodenetworkconfigs.acn.azure.com": READ,
            "clustersubnets.acn.azure.com": READ,
            "ippools.whereabouts.cni.cncf.io": READ,
            "nodeslicepools.whereabouts.cni.cncf.io": READ,
            "nodeslices.podpool.io": READ,
            "network-attachment-definitions.k8s.cni.cncf.io": READ,
        },
        HOME: {},
    },
}


class TestRoles:
    @pytest.mark.parametrize("account", RIGHTS)
    @pytest.mark.parametrize("namespace", ["default", HOME])
    def test_the_rights_are_these_and_no_others(
        self, installed: ControlPlane, control_plane: ControlPlane, account: str, namespace: str
    ) -> None:
        api = control_plane.api(installed.accounts.token(account, namespace=HOME))
        everyone = permissions(control_plane.api(installed.accounts.token("nobody", namespace=HOME)), namespace)
        expected = {
            (resource, verb)
            for place in {"default", namespace}
            for resource, verbs in RIGHTS[account][place].items()
            for verb in verbs
        }
        until(lambda: expected == permissions(api, namespace) - everyone, f"{account} has its rights")

    def test_elsewhere_an_agent_reads_no_secrets_and_no_pools(self, nodes: Nodes) -> None:
        for path in ("/api/v1/secrets", f"/api/v1/namespaces/{HOME}/secrets", POOLS.replace(HOME, "default")):
            assert refused(nodes.a.get, path)


def permissions(api: Api, namespace: str) -> set[tuple[str, str]]:
    """Return the permissions of an account in a namespace, as the API server reports them."""
    review = {**of("authorization.k8s.io/v1", "SelfSubjectRulesReview"), "spec": {"namespace": namespace}}
    answer = api.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    return {
        (f"{resource}.{group}".rstrip(".") + "".join(f" {name}" for name in rule.get("resourceNames", [])), verb)
        for rule in answer["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
