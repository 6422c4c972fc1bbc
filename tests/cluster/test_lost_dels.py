"""Sandboxes whose DEL is lost in every way: their addresses come back, and no living sandbox loses its own.

| way | node | sandboxes | found by |
|---|---|---|---|
| agent down | one | their DELs are deferred | the deferred DELs |
| deferred DEL deleted | one | some of Pods that the kubelet ended meanwhile | Pods |
| runtime killed | two | without Pods, and of Pods that are force-deleted meanwhile | Pods, and the runtime agrees |
| | two | of Pods that stay, and get new sandboxes | the runtime alone |
| reboot | two | those that lived until then | the boot ID |

The runtime is killed with shims, and started with older metadata: it does not know the sandboxes that it has created
since. Some of these live on, as their network namespaces show. Most of the thousand are created as a runtime does it,
with a network namespace and the plugin, but without a runtime: a kubelet would take minutes for so many.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from parts.cluster import PODS, pod_spec
from parts.debian import command
from parts.installation import AGENT_PORT, state
from parts.loopback import read
from parts.polling import until
from parts.relay import network_of
from podpool.agent.pool import Pool
from tests.cluster.conftest import INTERVAL
from tests.cluster.consistency import DEFERRED_DELETES, replayed, shared

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from parts.daemon import Daemon
    from parts.node import Node
    from podpool.agent.records import GrantAssignment
    from tests.cluster.conftest import World

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(900)]

LIVING, STATIC = 20, 2
ENDED = [f"ended-{number}" for number in range(3)]
REPLACED = [f"replaced-{number}" for number in range(25)]
"""Pods that stay while the runtime loses their sandboxes."""
FORCED = [f"forced-{number}" for number in range(35)]
"""Pods that are force-deleted while the runtime loses their sandboxes."""
OUTLIVING = {*REPLACED[:5], *FORCED[:5]}
"""Pods whose sandboxes live on although the runtime does not know them."""
EACH_WAY = 250
DEFERRED, DELETED, REBOOTED = ([f"{way}-{n}" for n in range(EACH_WAY)] for way in ("deferred", "deleted", "rebooted"))
KILLED = [f"killed-{n}" for n in range(EACH_WAY - len({*REPLACED, *FORCED} - OUTLIVING))]
LIMIT = 180.0
"""Seconds after which the address of a sandbox that ended without a DEL is cooling down at the latest."""

NO_WORKLOAD = [{"name": "main", "image": "absent", "imagePullPolicy": "Never"}]
METADATA, OLDER_METADATA = "/run/containerd/root/io.containerd.metadata.v1.bolt/meta.db", "/run/older-metadata"
NETNS = "/run/netns"
CONFIG = json.dumps({"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "podpool"}})
CALL = f"""CNI_COMMAND={{command}} CNI_CONTAINERID=$0 CNI_NETNS={NETNS}/$0 CNI_IFNAME=eth0 \\
  CNI_ARGS="K8S_POD_NAMESPACE=default;K8S_POD_NAME=$0;K8S_POD_UID=uid-of-$0" {{plugin}} < {{config}} > /dev/null"""


class Living:
    """The sandboxes of some Pods of a node, each with its network namespace and address."""

    def __init__(self, node: Node, pods: Collection[str]) -> None:
        self._node = node
        self._addresses = addresses(of_pods(node, pods).values())

    def check(self) -> None:
        """The addresses that their interfaces have are assigned to them."""
        assert self._addresses == self._node.interfaces(self._addresses)
        assert self._addresses.items() <= addresses(held(self._node).values()).items()


def test_addresses_of_a_thousand_sandboxes_whose_del_is_lost_come_back(world: World) -> None:
    one, two = world.cluster.nodes["one"], world.cluster.nodes["two"]
    with static_pods(one, two):
        start_pods(world)
        create_sandboxes(world)
        living = [Living(one, world.on("one").keys() - {*ENDED}), Living(two, world.on("two").keys() | OUTLIVING)]
        lost_on_one = {*DEFERRED, *DELETED, *of_pods(one, ENDED)}
        lost_on_two = {*KILLED, *of_pods(two, {*REPLACED, *FORCED} - OUTLIVING)}
        replaced, found = uids(world, REPLACED), metric(two, "lost_dels_total")

        lose_dels(world)
        lost_at = time.monotonic()
        expect_released(one, lost_on_one, living, lost_at)
        expect_released(two, lost_on_two, living, lost_at)
        assert EACH_WAY == metric(two, "lost_dels_total") - found
        assert {*REBOOTED} <= held(two).keys()
        assert replaced == uids(world, REPLACED)
        assert [] == shared("interfaces have", two.interfaces(runtime_namespaces(two)).values())

        for name in REPLACED:
            world.cluster.force_delete(name)
        two.reboot()
        world.installation.join(two)
        expect_released(two, {*REBOOTED}, living[:1], time.monotonic())
        world.agrees(pods=LIVING + STATIC)
        living[0].check()


# Pods and sandboxes


@contextmanager
def static_pods(*nodes: Node) -> Iterator[None]:
    """Run a static Pod on each node."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": "default"}}
    manifests = [node.manifests / "static.json" for node in nodes]
    for each in manifests:
        each.write_text(json.dumps(pod | {"spec": pod_spec()}))
    try:
        yield
    finally:
        for each in manifests:
            each.unlink()


def start_pods(world: World) -> None:
    """Run Pods that a kubelet ends or that live, and keep a copy of the runtime's metadata."""
    world.cluster.deploy("living", LIVING)
    world.cluster.run_pods(ENDED, node="one")
    until(lambda: len(world.running()) == LIVING + STATIC + len(ENDED), "all Pods run", interval=INTERVAL)
    two = world.cluster.nodes["two"]
    with down(two.containerd):
        two.run("cp", METADATA, OLDER_METADATA)


def create_sandboxes(world: World) -> None:
    """Create all others, and wait until the agent has seen those of Pods in the runtime's list."""
    one, two = world.cluster.nodes["one"], world.cluster.nodes["two"]
    with ThreadPoolExecutor() as threads:
        created = [
            threads.submit(create, one, [*DEFERRED, *DELETED]),
            threads.submit(create, two, [*KILLED, *REBOOTED]),
        ]
        world.cluster.run_pods([*REPLACED, *FORCED], node="two", containers=NO_WORKLOAD)
        for each in created:
            each.result()
    pods = len(world.bound_to("two"))
    until(lambda: metric(two, "listed_sandboxes") == pods, "the agent has seen them", interval=INTERVAL)


def create(node: Node, sandboxes: Iterable[str]) -> None:
    """Create the network namespaces of sandboxes without runtime, and call ADD for each."""
    # `ip netns` would mount the directory once more, under the namespaces of the runtime
    enter = f"{command('unshare')} --net={NETNS}/$0"
    call(node, "ADD", sandboxes, before=f": > {NETNS}/$0", enter=enter)


def call(node: Node, cni_command: str, sandboxes: Iterable[str], *, before: str = ":", enter: str = "env") -> None:
    """Call the plugin for each, several at once, as a runtime does; a DEL does not wait for the agent."""
    config = node.home / "config.json"
    config.write_text(CONFIG)
    script = CALL.format(command=cni_command, plugin=f"{enter} {node.plugins / 'podpool'}", config=config)
    wait_ms = 1 if cni_command == "DEL" else 60_000
    calls = f"PODPOOL_WAIT_MS={wait_ms} xargs -n 1 -P 16 sh -c '{before}; {script}'"
    node.run("sh", "-c", f"echo {' '.join(sandboxes)} | {calls}")


# Ways to lose DELs


def lose_dels(world: World) -> None:
    """Kill an agent and a runtime, and lose what they were to do."""
    one, two = world.cluster.nodes["one"], world.cluster.nodes["two"]
    with down(world.installation.agents["one"]), ThreadPoolExecutor() as threads:
        deferred = threads.submit(call, one, "DEL", [*DEFERRED, *DELETED])
        kill_runtime(world, two)
        end_pods(world, one)
        deferred.result()
        remove_namespaces(one, [*DEFERRED, *DELETED])
        one.run("sh", "-c", f"cd {DEFERRED_DELETES} && ls | grep -v ^deferred- | xargs rm")


def kill_runtime(world: World, node: Node) -> None:
    """Kill the runtime and the shims of sandboxes, and start it with older metadata."""
    lost = of_pods(node, {*REPLACED, *FORCED} - OUTLIVING)
    tasks = dict(line.split()[:2] for line in node.ctr("tasks", "list").splitlines())
    processes = [tasks[sandbox] for sandbox in lost]
    with down(node.containerd):
        node.run("sh", "-c", f"kill -9 $(ps -o ppid= -p {','.join(processes)}) {' '.join(processes)}")
        remove_namespaces(node, [*KILLED, *addresses(lost.values())])
        for name in FORCED:
            world.cluster.force_delete(name)
        node.run("cp", OLDER_METADATA, METADATA)


def end_pods(world: World, node: Node) -> None:
    """Have the kubelet end Pods: the runtime calls DEL, and removes their network namespaces."""
    namespaces = addresses(of_pods(node, ENDED).values()).keys()
    for name in ENDED:
        world.cluster.admin.delete(f"{PODS}/{name}")
    until(lambda: namespaces.isdisjoint(node.network_namespaces()), "the runtime has ended them", interval=INTERVAL)


def remove_namespaces(node: Node, names: Iterable[str]) -> None:
    """Remove network namespaces."""
    paths = " ".join(f"{NETNS}/{name}" for name in names)
    node.run("sh", "-c", f"umount {paths} && rm {paths}")


@contextmanager
def down(daemon: Daemon) -> Iterator[None]:
    """Have a daemon killed for a while."""
    daemon.kill()
    try:
        yield
    finally:
        daemon.start()


# Observations


def expect_released(node: Node, lost: set[str], living: Sequence[Living], lost_at: float) -> None:
    """Wait until none of them has an address; those that live keep theirs."""

    def released() -> bool:
        for each in living:
            each.check()
        return lost.isdisjoint(held(node))

    try:
        until(released, "all are released", timeout=lost_at + LIMIT - time.monotonic(), interval=INTERVAL)
    except TimeoutError:
        left, seconds = sorted(lost & held(node).keys()), time.monotonic() - lost_at
        pytest.fail(f"{node.name}: {len(left)} of {len(lost)} have an address after {seconds:.0f} s: {left[:5]}")


def held(node: Node) -> dict[str, GrantAssignment]:
    """The sandboxes that have an address, according to the agent's journal."""
    return {each.attachment.container_id: each for each in replayed(state(node), Pool()).assigned.values()}


def of_pods(node: Node, pods: Collection[str]) -> dict[str, GrantAssignment]:
    """The sandboxes of Pods, one for each."""
    found = {sandbox: each for sandbox, each in held(node).items() if each.pod.name in pods}
    assert sorted(pods) == sorted(each.pod.name for each in found.values())
    return found


def addresses(assignments: Iterable[GrantAssignment]) -> dict[str, str]:
    """The address in each network namespace, by its name."""
    return {each.netns.rpartition("/")[2]: each.grant.address for each in assignments}


def runtime_namespaces(node: Node) -> list[str]:
    """The network namespaces that the runtime has created."""
    return [name for name in node.network_namespaces() if name.startswith("cni-")]


def uids(world: World, pods: Collection[str]) -> dict[str, str]:
    """The UIDs of Pods."""
    metas = [pod["metadata"] for pod in world.cluster.pods()]
    return {meta["name"]: meta["uid"] for meta in metas if meta["name"] in pods}


def metric(node: Node, name: str) -> float:
    """A metric of a node's agent."""
    with network_of(node.pid):
        lines = read(AGENT_PORT, "/metrics").decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"podpool_agent_{name} "))
