"""Who had which address, down to the Pod."""

import json

from podpool.api.builtin import PODS
from podpool.ledger.admin_messages import PodUsage
from tests.controller.harness import Place, Site, until
from tests.kube.loops import in_loop

STARTED = "2026-01-02T03:04:05Z"
NETWORKS = [
    {"name": "podpool", "interface": "eth0", "ips": ["10.0.0.2"], "default": True},
    {"name": "default/storage", "interface": "net1", "ips": ["172.16.0.9", "fd00::9"]},
    {"name": "default/broken", "ips": ["nonsense"]},
]


async def run_pod(site: Site, name: str, address: str, **metadata: object) -> None:
    """Have a scheduler bind a Pod, and a kubelet report its address."""
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}
    body = {"metadata": {"name": name, "namespace": site.namespace, **metadata}, "spec": spec}
    await site.client.create(PODS, body)
    await report(site, name, address)


async def report(site: Site, name: str, address: str, phase: str = "Running") -> None:
    status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}], "startTime": STARTED}
    await site.client.merge_patch(PODS, name, {"status": status}, namespace=site.namespace, subresource="status")


async def pods_of(site: Site, address: str, count: int, *, ended: int = 0) -> tuple[PodUsage, ...]:
    """Wait until the ledger knows of so many Pods that had an address, and that so many have it no more."""

    async def known() -> tuple[PodUsage, ...] | None:
        tenures = (await site.ledger.history(address=address)).tenures
        uses = tenures[0].pods if tenures else ()
        return uses if (count, ended) == (len(uses), sum(use.until is not None for use in uses)) else None

    return await until(known, f"{count} Pods had {address}")


@in_loop
async def test_a_pod_is_told_with_its_uid_since_when_and_until_when(place: Place) -> None:
    async with place.site() as site:
        await site.subnet()
        site.start(pod_history=True)
        await site.joined("n1")
        address = (await site.granted("n1", 15)).ip_assignments[0].ip
        await run_pod(site, "web", address)
        (use,) = await pods_of(site, address, 1)
        pod = await site.client.get(PODS, "web", namespace=site.namespace)
        assert (pod.metadata.uid, "web", site.namespace) == (use.uid, use.name, use.namespace)
        assert use.since.startswith("2026-01-02T03:04:05")
        await site.client.delete(PODS, "web", namespace=site.namespace, grace_seconds=0)
        await pods_of(site, address, 1, ended=1)
        await run_pod(site, "next", address)
        latest, before = await pods_of(site, address, 2, ended=1)
        assert ("next", "web") == (latest.name, before.name) or ("next", "web") == (before.name, latest.name)
        await report(site, "next", address, "Succeeded")
        await pods_of(site, address, 2, ended=2)


@in_loop
async def test_further_networks_are_those_of_the_annotation(place: Place) -> None:
    async with place.site() as site:
        await site.subnet()
        site.start(pod_history=True)
        await site.joined("n1")
        address = (await site.granted("n1", 15)).ip_assignments[0].ip
        told = {"k8s.v1.cni.cncf.io/network-status": json.dumps(NETWORKS)}
        await run_pod(site, "web", address, annotations=told)
        await pods_of(site, address, 1)
        reports = [json.loads(each.body)["pods"] for each in site.calls.sent if each.path == "/v1/pods"]
        places = {(use["network"], use["address"]) for pods in reports for use in pods}
        assert {("vnet", address), ("default/storage", "172.16.0.9"), ("default/storage", "fd00::9")} == places


@in_loop
async def test_a_new_leader_tells_all_again_and_nothing_changes(place: Place) -> None:
    async with place.site() as site:
        await site.subnet()
        first = site.start(pod_history=True)
        await site.joined("n1")
        address = (await site.granted("n1", 15)).ip_assignments[0].ip
        await run_pod(site, "web", address)
        before = await pods_of(site, address, 1)
        await site.stop(first)
        site.calls.sent.clear()
        site.start(pod_history=True)

        async def reported() -> bool:
            return any(each.path == "/v1/pods" for each in site.calls.sent)

        await until(reported, "it is told again")
        assert before == await pods_of(site, address, 1)


@in_loop
async def test_it_can_be_turned_off(place: Place) -> None:
    async with place.site() as site:
        await site.subnet()
        site.start(pod_history=False)
        await site.joined("n1")
        await run_pod(site, "web", "10.0.0.9")
        await site.granted("n1", 15)
        assert [] == [each for each in site.road.sent if each.path == "/api/v1/pods" and each.query.get("watch")]
