"""Routing of plugin requests to address sources."""

import random
from collections.abc import Callable

import pytest

from podpool.agent.deps import AgentDeps
from podpool.agent.records import PodIdentity
from podpool.agent.secondary.router import AddressRequest, Router
from podpool.cni.protocol import Attachment, CniError, ErrorCode, PluginRequest
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.kube.client import KubeClient
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.agent.secondary.test_shared_range_log import NoTransport
from tests.kube.event_loops import run_in_loop

ARGS = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"
MIXED = b"""{"name": "net", "ipam": {"type": "podpool", "ipRanges": [
    {"range": "10.1.0.0/16", "node_slice_size": "/24"}, {"range": "10.2.0.0/16"},
    {"range": "fd00::/64", "node_slice_size": "/120"}]}}"""

SLICED = b'{"name": "net", "ipam": {"type": "podpool", "range": "10.1.0.0/16", "node_slice_size": "/24"}}'
ONE = b'{"ipam": {"type": "whereabouts", "range": "10.0.0.0/8"}}'


class FakeSource:
    """Allocates the first address of every range."""

    def __init__(self) -> None:
        self.allocated: dict[Attachment, tuple[Address, ...]] = {}
        self.collected: list[str] = []
        self.released_ranges: list[str] | None = None

    async def allocate(self, request: AddressRequest) -> tuple[Address, ...]:
        self.allocated[request.attachment] = tuple(each.prefix.at(1) for each in request.ranges)
        return self.allocated[request.attachment]

    async def release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        self.schedule_release(attachment, request)

    def schedule_release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        self.allocated.pop(attachment, None)
        self.released_ranges = [str(each.prefix) for each in request.ranges] if request else None

    async def check(self, request: AddressRequest) -> tuple[Address, ...]:
        if request.attachment not in self.allocated:
            raise CniError(ErrorCode.CHECK_MISMATCH, "nothing")
        return self.allocated[request.attachment]

    async def collect_garbage(self, network: str, valid: frozenset[Attachment]) -> None:
        assert not valid
        self.collected.append(network)


def router(
    sliced: FakeSource | None = None,
    shared: FakeSource | None = None,
    read_file: Callable[[str], bytes | None] = lambda _path: None,
) -> Router:
    deps = AgentDeps(
        node="a",
        boot_id="boot-1",
        kube=KubeClient(NoTransport()),
        disk=MemoryDisk(),
        clock=SetClock(),
        rng=random.Random(1),  # noqa: S311  seeded
        read_file=read_file,
    )
    return Router(deps, sliced=sliced or FakeSource(), shared=shared or FakeSource())


def request(stdin: bytes, *, command: str = "ADD", args: str = ARGS) -> PluginRequest:
    return PluginRequest(command=command, container_id="a", ifname="net1", args=args, stdin=stdin)


def parsed(stdin: bytes) -> AddressRequest:
    found = router().parse(request(stdin), PodIdentity())
    assert found
    return found


class TestParse:
    @pytest.mark.parametrize(
        "stdin",
        [
            b'{"ipam": {"type": "podpool"}}',
            b'{"name": "orange", "ipam": {"type": "podpool"}}',
            b'{"name": "whereabouts"}',
            b'{"ipam": {"type": "host-local", "ranges": []}}',
        ],
    )
    def test_a_configuration_without_ranges_is_for_the_node_pool(self, stdin: bytes) -> None:
        assert router().parse(request(stdin), PodIdentity()) is None

    @pytest.mark.parametrize(
        "stdin",
        [
            b'{"ipam": {"type": "podpool", "Range": "10.0.0.0/8"}}',
            b'{"ipam": {"type": "whereabouts", "ipRanges": [{"range": "10.0.0.0/8"}]}}',
            b'{"ipam": {"type": "whereabouts"}}',
        ],
    )
    def test_a_configuration_with_ranges_or_of_whereabouts_is_not(self, stdin: bytes) -> None:
        assert router().parse(request(stdin), PodIdentity())

    def test_the_flat_file_fills_empty_keys(self) -> None:
        flat = {"/etc/cni/net.d/whereabouts.d/whereabouts.conf": b'{"range": "10.7.0.0/16", "node_slice_size": "/24"}'}
        stdin = b'{"ipam": {"type": "whereabouts"}}'
        found = router(read_file=flat.get).parse(request(stdin), PodIdentity())
        assert found
        assert ["10.7.0.0/16"] == [str(each.prefix) for each in found.ranges]

    def test_the_flat_file_does_not_apply_to_the_node_pool(self) -> None:
        flat = {"/etc/cni/net.d/whereabouts.d/whereabouts.conf": b'{"range": "10.7.0.0/16", "node_slice_size": "/24"}'}
        stdin = b'{"ipam": {"type": "podpool", "ipRanges": []}}'
        assert router(read_file=flat.get).parse(request(stdin), PodIdentity()) is None

    def test_an_empty_flat_file_is_rejected(self) -> None:
        flat = {"/etc/cni/net.d/whereabouts.d/whereabouts.conf": b""}
        with pytest.raises(CniError, match="flat file") as caught:
            router(read_file=flat.get).parse(request(ONE), PodIdentity())
        assert ErrorCode.INVALID_CONFIG is caught.value.code

    def test_invalid_configurations_are_rejected_with_the_reason(self) -> None:
        def directory(path: str) -> bytes | None:
            raise InvalidInput("configuration_path", path, "is a directory")

        bad = b'{"ipam": {"type": "whereabouts", "range": "foo"}}'
        for plugin_request, read_file in ((request(bad), lambda _path: None), (request(ONE), directory)):
            with pytest.raises(CniError) as caught:
                router(read_file=read_file).parse(plugin_request, PodIdentity())
            assert ErrorCode.INVALID_CONFIG is caught.value.code

    @pytest.mark.parametrize(
        "args",
        [
            "",
            "K8S_POD_NAME=web-0",
            "K8S_POD_NAMESPACE=default",
            "K8S_POD_NAMESPACE=;K8S_POD_NAME=web-0",
            f"{ARGS};FOO=1",
            f"{ARGS};FOO",
            f"{ARGS};IgnoreUnknown=perhaps",
            f"{ARGS};IP=10.0.0.5",
            f"{ARGS};IP=10.0.0.5/8;GATEWAY=foo",
        ],
    )
    def test_invalid_cni_args_are_rejected_as_invalid_environment(self, args: str) -> None:
        with pytest.raises(CniError) as caught:
            router().parse(request(ONE, args=args), PodIdentity())
        assert ErrorCode.INVALID_ENVIRONMENT is caught.value.code
        assert caught.value.message.startswith(("CNI_ARGS", "IgnoreUnknown"))

    @pytest.mark.parametrize("args", ["", "FOO", f"{ARGS};IP=foo"])
    def test_only_an_add_needs_a_pod(self, args: str) -> None:
        assert router().parse(request(ONE, command="DEL", args=args), PodIdentity())


class TestRouting:
    @run_in_loop
    async def test_ranges_with_a_slice_size_go_to_slices_and_others_to_shared_ranges(self) -> None:
        sliced, shared = FakeSource(), FakeSource()
        both = router(sliced, shared)
        assert ["10.1.0.1"] == list(map(str, await both.allocate(parsed(SLICED))))
        assert ["10.1.0.1"] == list(map(str, await both.check(parsed(SLICED))))
        assert not shared.allocated
        assert ["10.0.0.1"] == list(map(str, await both.allocate(parsed(ONE))))
        assert shared.allocated

    @run_in_loop
    async def test_a_mix_of_sliced_and_shared_ranges_is_rejected(self) -> None:
        """As by the controller, which assigns no slices for such a NAD."""
        sliced, shared = FakeSource(), FakeSource()
        both = router(sliced, shared)
        for call in (both.allocate, both.check):
            with pytest.raises(CniError, match="^node_slice_size '': is missing for 10.2.0.0/16") as caught:
                await call(parsed(MIXED))
            assert ErrorCode.INVALID_CONFIG is caught.value.code
        assert not sliced.allocated
        assert not shared.allocated

    @pytest.mark.parametrize(("stdin", "released_ranges"), [(ONE, ["10.0.0.0/8"]), (SLICED, None), (MIXED, None)])
    def test_del_and_gc_go_to_both_sources(self, stdin: bytes, released_ranges: list[str] | None) -> None:
        @run_in_loop
        async def body() -> None:
            sliced, shared = FakeSource(), FakeSource()
            both, attachment = router(sliced, shared), Attachment(container_id="a", ifname="net1")
            sliced.allocated[attachment] = shared.allocated[attachment] = ()
            await both.release(attachment, parsed(stdin))
            assert not sliced.allocated
            assert not shared.allocated
            assert released_ranges == shared.released_ranges
            await both.collect_garbage("net", frozenset())
            assert ["net"] == sliced.collected == shared.collected

        body()
