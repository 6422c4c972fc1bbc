"""When it is certain that no sandbox has an address that the journal has forgotten."""

from podpool.agent.lost_grant_gc import APART, Recollection
from podpool.agent.pool import Pool
from podpool.agent.records import Accepted, Adopted, Assigned, Doubted, Owner, PodName
from podpool.api.builtin import Pod, PodIP, PodMeta, PodSpec, PodStatus
from tests.agent.statuses import CONTAINER, grants, status


def forgetful(*, beside: bool = False) -> Pool:
    """A pool that has forgotten g1 and g2, and b1 of a further container."""
    pool = Pool()
    pool.apply(Adopted(container=CONTAINER))
    pool.apply(Doubted(at=0.0, forgotten=("g1", "g2", "b1")))
    pool.apply(Accepted(container=status(1, grants(1, 2)), at=0.0))
    if beside:
        pool.apply(Accepted(container=status(1, {"b1": "10.0.2.1"}, container="beside"), at=0.0))
    return pool


def pod(name: str, *shown: str, phase: str = "Running", host: bool = False) -> Pod:
    ips = tuple(PodIP(ip=each) for each in shown)
    return Pod(
        metadata=PodMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=PodSpec(host_network=host),
        status=PodStatus(phase=phase, pod_ips=ips),
    )


def found(pool: Pool, *pods: Pod, asked: tuple[str, ...] = ()) -> set[str]:
    """Look twice; tells what nobody has."""
    recollection = Recollection()
    assert () == recollection.look(pool, pods, set(asked), now=0.0)
    return set(recollection.look(pool, pods, set(asked), now=APART))


def test_what_no_pod_shows_is_nobodys() -> None:
    assert {"g1", "g2"} == found(forgetful())
    assert {"g2"} == found(forgetful(), pod("a", "10.0.1.1"))


def test_a_pod_without_an_address_may_have_any() -> None:
    assert set() == found(forgetful(), pod("a"))


def test_but_not_one_that_asked_or_has_its_own_or_needs_none() -> None:
    assert {"g1", "g2"} == found(forgetful(), pod("a"), pod("b"), asked=("uid-a", "default/b"))
    assert {"g1", "g2"} == found(forgetful(), pod("a", phase="Succeeded"), pod("b", host=True))
    pool = forgetful()
    pool.forgotten.discard("g1")
    pool.apply(Assigned(grant="g1", owner=Owner(container_id="a", ifname="eth0"), pod=PodName(uid="uid-a")))
    assert {"g2"} == found(pool, pod("a"))


def test_addresses_of_further_containers_are_never_shown() -> None:
    assert {"g2"} == found(forgetful(beside=True), pod("a", "10.0.1.1"))
    assert {"g1", "g2", "b1"} == found(forgetful(beside=True), pod("a"), asked=("uid-a",))


def test_one_look_is_not_enough_and_the_second_must_find_the_same() -> None:
    recollection, pool = Recollection(), forgetful()
    recollection.look(pool, [], set(), now=0.0)
    assert () == recollection.look(pool, [], set(), now=APART - 1)
    recollection.look(pool, [pod("a", "10.0.1.1")], set(), now=APART - 1)
    assert ("g2",) == recollection.look(pool, [], set(), now=APART)
