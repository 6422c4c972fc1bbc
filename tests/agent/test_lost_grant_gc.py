"""When a lost grant is certainly used by no sandbox."""

from podpool.agent.lost_grant_gc import unused_lost_grants
from podpool.agent.pool import Pool
from podpool.agent.records import Assigned, CooldownForced, NCAccepted, NCAdopted, PodIdentity
from podpool.api.builtin import Pod, PodAnnotations, PodIP, PodMeta, PodSpec, PodStatus
from podpool.cni.protocol import Attachment
from tests.agent.nc_samples import NC, grants, status


def pool_with_lost(*, additional_nc: bool = False) -> Pool:
    """Return a pool in which g1 and g2 are lost, and b1 of an additional NC."""
    pool = Pool()
    pool.apply(NCAdopted(nc=NC))
    pool.apply(CooldownForced(at=0.0, lost=("g1", "g2", "b1")))
    pool.apply(NCAccepted(nc=status(1, grants(1, 2)), at=0.0))
    if additional_nc:
        pool.apply(NCAccepted(nc=status(1, {"b1": "10.0.2.1"}, nc="nc-2"), at=0.0))
    return pool


def pod(name: str, *shown: str, phase: str = "Running", host: bool = False, config_hash: str | None = None) -> Pod:
    ips = tuple(PodIP(ip=each) for each in shown)
    annotations = PodAnnotations(config_hash=config_hash)
    return Pod(
        metadata=PodMeta(name=name, namespace="default", uid=f"uid-{name}", annotations=annotations),
        spec=PodSpec(host_network=host),
        status=PodStatus(phase=phase, pod_ips=ips),
    )


def unused(pool: Pool, *pods: Pod, added: tuple[str, ...] = ()) -> set[str]:
    return set(unused_lost_grants(pool, pods, set(added)))


def test_addresses_that_no_pod_shows_are_unused() -> None:
    assert {"g1", "g2"} == unused(pool_with_lost())
    assert {"g2"} == unused(pool_with_lost(), pod("a", "10.0.1.1"))


def test_a_pod_that_shows_no_address_may_use_any() -> None:
    assert set() == unused(pool_with_lost(), pod("a"))


def test_but_not_one_that_sent_an_add_or_has_an_assignment_or_needs_none() -> None:
    assert {"g1", "g2"} == unused(pool_with_lost(), pod("a"), pod("b"), added=("uid-a", "default/b"))
    assert {"g1", "g2"} == unused(pool_with_lost(), pod("a", phase="Succeeded"), pod("b", host=True))
    pool = pool_with_lost()
    pool.lost.discard("g1")
    pool.apply(
        Assigned(grant="g1", attachment=Attachment(container_id="a", ifname="eth0"), pod=PodIdentity(uid="uid-a"))
    )
    assert {"g2"} == unused(pool, pod("a"))


def test_a_static_pod_is_known_by_its_config_hash() -> None:
    """Its mirror Pod has another UID than its sandbox."""
    static = pod("a", config_hash="hash")
    assert {"g1", "g2"} == unused(pool_with_lost(), static, added=("hash",))
    pool = pool_with_lost()
    attachment = Attachment(container_id="a", ifname="eth0")
    pool.apply(Assigned(grant="g1", attachment=attachment, pod=PodIdentity(uid="hash")))
    assert {"g2"} == unused(pool, static)
    assert {"g1", "g2"} == unused(pool, pod("a", "10.0.1.1", config_hash="hash"))


def test_addresses_of_additional_ncs_are_never_shown() -> None:
    assert {"g2"} == unused(pool_with_lost(additional_nc=True), pod("a", "10.0.1.1"))
    assert {"g1", "g2", "b1"} == unused(pool_with_lost(additional_nc=True), pod("a"), added=("uid-a",))
