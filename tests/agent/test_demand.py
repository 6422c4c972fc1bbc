"""How many Pods still need an address."""

import msgspec

from podpool.agent.demand import Demand
from podpool.agent.records import Grant, Holding, Owner, PodName
from podpool.api.builtin import Pod, PodAnnotations, PodMeta, PodSpec, PodStatus


def pod(name: str, *, uid: str = "", leaving: bool = False, host: bool = False, mirror: bool = False) -> Pod:
    return Pod(
        metadata=PodMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-{name}",
            deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
            annotations=PodAnnotations(mirror="hash" if mirror else None),
        ),
        spec=PodSpec(host_network=host),
        status=PodStatus(phase="Pending"),
    )


def named(name: str, *, uid: str = "") -> PodName:
    return PodName(namespace="default", name=name, uid=uid)


def holding(who: PodName) -> Holding:
    grant = Grant(id="g", address="10.0.0.9", since=0.0)
    return Holding(grant=grant, owner=Owner(container_id="c", ifname="eth0"), pod=who)


def unserved(*pods: Pod, held: tuple[PodName, ...] = (), waiting: tuple[PodName, ...] = ()) -> int:
    owners = {Owner(container_id=str(n), ifname="eth0"): each for n, each in enumerate(waiting)}
    return Demand().unserved(pods, holdings=[holding(each) for each in held], waiting=owners)


def test_a_bound_pod_counts_until_it_has_an_address() -> None:
    assert 1 == unserved(pod("web"))
    assert 0 == unserved(pod("web"), held=(named("web", uid="uid-web"),))
    assert 0 == unserved(pod("web"), held=(named("web"),))


def test_the_address_of_an_earlier_pod_of_that_name_does_not_serve_the_new_one() -> None:
    assert 1 == unserved(pod("web-0", uid="new"), held=(named("web-0", uid="old"),))


def test_a_mirrored_pod_is_known_by_its_name() -> None:
    assert 0 == unserved(pod("static", uid="api", mirror=True), held=(named("static", uid="kubelet"),))


def test_pods_on_the_host_network_and_pods_that_leave_need_none() -> None:
    assert 0 == unserved(pod("host", host=True), pod("leaving", leaving=True))


def test_a_sandbox_that_waits_counts_once_seen_or_not() -> None:
    assert 2 == unserved(pod("seen"), waiting=(named("seen"), PodName()))


def test_a_pod_that_gave_its_address_back_counts_again_when_its_next_sandbox_asks() -> None:
    demand = Demand()
    demand.gave_back(named("web", uid="uid-web"))
    assert 0 == demand.unserved([pod("web")], holdings=[], waiting={})
    again = {Owner(container_id="2", ifname="eth0"): named("web", uid="uid-web")}
    assert 1 == demand.unserved([pod("web")], holdings=[], waiting=again)


def test_a_pod_that_is_gone_is_forgotten() -> None:
    demand = Demand()
    demand.gave_back(named("web-0"))
    assert 0 == demand.unserved([], holdings=[], waiting={})
    assert 1 == demand.unserved([pod("web-0")], holdings=[], waiting={})


def test_phases_count_as_azures_do() -> None:
    def of(*phases: str) -> int:
        made = [msgspec.structs.replace(pod(str(n)), status=PodStatus(phase=each)) for n, each in enumerate(phases)]
        return unserved(*made)

    assert 0 == of()
    assert 2 == of("Running", "Pending")
    assert 2 == of("Running", "Succeeded", "Failed", "Pending")
    assert 0 == of("Succeeded", "Failed")
