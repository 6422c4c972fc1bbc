"""How many Pods still need an address."""

import asyncio

import msgspec

from podpool.agent.demand import AddRequest, PodDemand
from podpool.agent.records import GrantAssignment, PodIdentity, PoolGrant
from podpool.api.builtin import Pod, PodAnnotations, PodMeta, PodSpec, PodStatus
from podpool.cni.protocol import Attachment


def pod(name: str, *, uid: str = "", deleting: bool = False, host: bool = False, config_hash: str = "") -> Pod:
    return Pod(
        metadata=PodMeta(
            name=name,
            namespace="default",
            uid=uid or f"uid-{name}",
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
            annotations=PodAnnotations(config_hash=config_hash or None),
        ),
        spec=PodSpec(host_network=host),
        status=PodStatus(phase="Pending"),
    )


def identity(name: str, *, uid: str = "") -> PodIdentity:
    return PodIdentity(namespace="default", name=name, uid=uid)


def assignment(user: PodIdentity) -> GrantAssignment:
    grant = PoolGrant(id="g", address="10.0.0.9", since=0.0)
    return GrantAssignment(grant=grant, attachment=Attachment(container_id="c", ifname="eth0"), pod=user)


def unserved(*pods: Pod, assigned: tuple[PodIdentity, ...] = ()) -> int:
    return PodDemand().unserved(pods, [assignment(each) for each in assigned])


async def unserved_with_waiting(demand: PodDemand, *pods: Pod, waiting: tuple[PodIdentity, ...]) -> int:
    """Count while the ADDs of these Pods wait."""
    attachments = [Attachment(container_id=str(number), ifname="eth0") for number in range(len(waiting))]
    adds = [
        asyncio.create_task(demand.queue.wait(each, AddRequest(attachment=each, pod=user), timeout=60.0))
        for each, user in zip(attachments, waiting, strict=True)
    ]
    await asyncio.sleep(0)
    count = demand.unserved(pods, [])
    for each in attachments:
        demand.queue.cancel(each)
    await asyncio.gather(*adds)
    return count


def test_a_bound_pod_counts_until_it_has_an_address() -> None:
    assert 1 == unserved(pod("web"))
    assert 0 == unserved(pod("web"), assigned=(identity("web", uid="uid-web"),))
    assert 0 == unserved(pod("web"), assigned=(identity("web"),))


def test_the_address_of_an_earlier_pod_of_that_name_does_not_serve_the_new_one() -> None:
    assert 1 == unserved(pod("web-0", uid="new"), assigned=(identity("web-0", uid="old"),))


def test_a_static_pod_is_known_by_its_config_hash() -> None:
    """Its mirror Pod has another UID."""
    assert 0 == unserved(pod("static", uid="api", config_hash="hash"), assigned=(identity("static", uid="hash"),))


def test_host_network_pods_and_pods_being_deleted_need_none() -> None:
    assert 0 == unserved(pod("host", host=True), pod("deleting", deleting=True))


def test_a_waiting_sandbox_counts_once_whether_its_pod_is_known_or_not() -> None:
    waiting = (identity("known"), PodIdentity())
    assert 2 == asyncio.run(unserved_with_waiting(PodDemand(), pod("known"), waiting=waiting))


def test_a_pod_whose_sandbox_was_deleted_counts_again_when_its_next_sandbox_sends_an_add() -> None:
    demand = PodDemand()
    web = identity("web", uid="uid-web")
    demand.sandbox_deleted(web)
    assert 0 == demand.unserved([pod("web")], [])
    assert 1 == asyncio.run(unserved_with_waiting(demand, pod("web"), waiting=(web,)))


def test_a_pod_whose_add_was_refused_counts_between_repetitions() -> None:
    """Its former sandbox, whose DEL was lost or is to come, does not serve it."""
    demand, web = PodDemand(), identity("web", uid="uid-web")
    demand.sandbox_deleted(web)
    demand.add_refused(web)
    assert 1 == demand.unserved([pod("web")], [assignment(web)])
    assert 1 == asyncio.run(unserved_with_waiting(demand, pod("web"), waiting=(web,)))
    assert 0 == demand.unserved([pod("web", deleting=True)], [assignment(web)])
    demand.add_served(web)
    assert 0 == demand.unserved([pod("web")], [assignment(web)])


def test_a_refused_pod_that_is_gone_is_forgotten() -> None:
    demand = PodDemand()
    demand.add_refused(identity("web-0"))
    assert 0 == demand.unserved([], [])
    assert 0 == demand.unserved([pod("web-0")], [assignment(identity("web-0"))])


def test_a_new_pod_of_the_name_of_a_deleted_one_counts() -> None:
    demand = PodDemand()
    demand.sandbox_deleted(identity("web-0"))
    assert 0 == demand.unserved([], [])
    assert 1 == demand.unserved([pod("web-0")], [])


def test_phases_count_as_in_azures_cns() -> None:
    def of(*phases: str) -> int:
        return unserved(
            *(msgspec.structs.replace(pod(str(n)), status=PodStatus(phase=each)) for n, each in enumerate(phases))
        )

    assert 0 == of()
    assert 2 == of("Running", "Pending")
    assert 2 == of("Running", "Succeeded", "Failed", "Pending")
    assert 0 == of("Succeeded", "Failed")
