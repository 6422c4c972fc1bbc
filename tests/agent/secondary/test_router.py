"""Which source is asked for what."""

from collections.abc import Callable

import pytest

from podpool.agent.records import PodIdentity
from podpool.agent.secondary.router import AddressRequest, Router
from podpool.cni.protocol import Attachment, CniError, ErrorCode, PluginRequest
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from tests.agent.clocks import SetClock
from tests.kube.event_loops import run_in_loop

ARGS = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"
MIXED = b"""{"name": "net", "ipam": {"type": "podpool", "ipRanges": [
    {"range": "10.1.0.0/16", "node_slice_size": "/24"}, {"range": "10.2.0.0/16"},
    {"range": "fd00::/64", "node_slice_size": "/120"}]}}"""

SLICED = b'{"name": "net", "ipam": {"type": "podpool", "range": "10.1.0.0/16", "node_slice_size": "/24"}}'
ONE = b'{"ipam": {"type": "whereabouts", "range": "10.0.0.0/8"}}'


class Fountain:
    """A source that has the first address of every range."""

    def __init__(self) -> None:
        self.held: dict[Attachment, tuple[Address, ...]] = {}
        self.collected: list[str] = []
        self.looked_at: list[str] | None = None

    async def give(self, want: AddressRequest) -> tuple[Address, ...]:
        self.held[want.sandbox] = tuple(each.prefix.at(1) for each in want.ranges)
        return self.held[want.sandbox]

    async def give_back(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        self.release(sandbox, want)

    def release(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        self.held.pop(sandbox, None)
        self.looked_at = [str(each.prefix) for each in want.ranges] if want else None

    async def check(self, want: AddressRequest) -> tuple[Address, ...]:
        if want.sandbox not in self.held:
            raise CniError(ErrorCode.CHECK_MISMATCH, "nothing")
        return self.held[want.sandbox]

    async def collect(self, network: str, valid: frozenset[Attachment]) -> None:
        assert not valid
        self.collected.append(network)


def router(
    sliced: Fountain | None = None,
    shared: Fountain | None = None,
    read_file: Callable[[str], bytes | None] = lambda _path: None,
) -> Router:
    return Router(sliced=sliced or Fountain(), shared=shared or Fountain(), clock=SetClock(), read_file=read_file)


def request(stdin: bytes, *, command: str = "ADD", args: str = ARGS) -> PluginRequest:
    return PluginRequest(command=command, container_id="a", ifname="net1", args=args, stdin=stdin)


def wanted(stdin: bytes) -> AddressRequest:
    found = router().want(request(stdin), PodIdentity())
    assert found
    return found


class TestWhoseItIs:
    @pytest.mark.parametrize(
        "stdin",
        [
            b'{"ipam": {"type": "podpool"}}',
            b'{"name": "orange", "ipam": {"type": "podpool"}}',
            b'{"name": "whereabouts"}',
            b'{"ipam": {"type": "host-local", "ranges": []}}',
        ],
    )
    def test_without_ranges_of_ours_it_is_for_the_nodes_own_pool(self, stdin: bytes) -> None:
        assert router().want(request(stdin), PodIdentity()) is None

    @pytest.mark.parametrize(
        "stdin",
        [
            b'{"ipam": {"type": "podpool", "Range": "10.0.0.0/8"}}',
            b'{"ipam": {"type": "whereabouts", "ipRanges": [{"range": "10.0.0.0/8"}]}}',
            b'{"ipam": {"type": "whereabouts"}}',
        ],
    )
    def test_with_ranges_or_as_whereabouts_it_is_not(self, stdin: bytes) -> None:
        assert router().want(request(stdin), PodIdentity())

    def test_the_flat_file_fills_what_is_left_empty(self) -> None:
        flat = {"/etc/cni/net.d/whereabouts.d/whereabouts.conf": b'{"range": "10.7.0.0/16", "node_slice_size": "/24"}'}
        stdin = b'{"ipam": {"type": "whereabouts"}}'
        found = router(read_file=flat.get).want(request(stdin), PodIdentity())
        assert found
        assert ["10.7.0.0/16"] == [str(each.prefix) for each in found.ranges]

    def test_but_makes_no_range_of_the_nodes_own_pool(self) -> None:
        flat = {"/etc/cni/net.d/whereabouts.d/whereabouts.conf": b'{"range": "10.7.0.0/16", "node_slice_size": "/24"}'}
        stdin = b'{"ipam": {"type": "podpool", "ipRanges": []}}'
        assert router(read_file=flat.get).want(request(stdin), PodIdentity()) is None

    def test_an_empty_flat_file_is_refused_as_one_that_is_no_json(self) -> None:
        flat = {"/etc/cni/net.d/whereabouts.d/whereabouts.conf": b""}
        with pytest.raises(CniError, match="flat file") as caught:
            router(read_file=flat.get).want(request(ONE), PodIdentity())
        assert ErrorCode.INVALID_CONFIG is caught.value.code

    def test_what_cannot_be_meant_is_refused_with_the_reason(self) -> None:
        def directory(path: str) -> bytes | None:
            raise InvalidInput("configuration_path", path, "is a directory")

        bad = b'{"ipam": {"type": "whereabouts", "range": "foo"}}'
        for asked, read_file in ((request(bad), lambda _path: None), (request(ONE), directory)):
            with pytest.raises(CniError) as caught:
                router(read_file=read_file).want(asked, PodIdentity())
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
    def test_an_environment_that_does_not_tell_who_asks_for_what_is_refused_as_such(self, args: str) -> None:
        with pytest.raises(CniError) as caught:
            router().want(request(ONE, args=args), PodIdentity())
        assert ErrorCode.INVALID_ENVIRONMENT is caught.value.code
        assert caught.value.message.startswith(("CNI_ARGS", "IgnoreUnknown"))

    @pytest.mark.parametrize("args", ["", "FOO", f"{ARGS};IP=foo"])
    def test_only_an_add_needs_a_pod(self, args: str) -> None:
        assert router().want(request(ONE, command="DEL", args=args), PodIdentity())


class TestSources:
    @run_in_loop
    async def test_a_size_makes_it_the_slices_and_none_the_shared_ranges(self) -> None:
        sliced, shared = Fountain(), Fountain()
        both = router(sliced, shared)
        assert ["10.1.0.1"] == list(map(str, await both.give(wanted(SLICED))))
        assert ["10.1.0.1"] == list(map(str, await both.check(wanted(SLICED))))
        assert not shared.held
        assert ["10.0.0.1"] == list(map(str, await both.give(wanted(ONE))))
        assert shared.held

    @run_in_loop
    async def test_ranges_of_both_kinds_are_refused_with_the_key(self) -> None:
        """As by the controller, which gives such a definition no slices."""
        sliced, shared = Fountain(), Fountain()
        both = router(sliced, shared)
        for call in (both.give, both.check):
            with pytest.raises(CniError, match="^node_slice_size '': is missing for 10.2.0.0/16") as caught:
                await call(wanted(MIXED))
            assert ErrorCode.INVALID_CONFIG is caught.value.code
        assert not sliced.held
        assert not shared.held

    @pytest.mark.parametrize(("stdin", "looked_at"), [(ONE, ["10.0.0.0/8"]), (SLICED, None), (MIXED, None)])
    def test_a_del_and_a_gc_go_to_both(self, stdin: bytes, looked_at: list[str] | None) -> None:
        @run_in_loop
        async def story() -> None:
            sliced, shared = Fountain(), Fountain()
            both, sandbox = router(sliced, shared), Attachment(container_id="a", ifname="net1")
            sliced.held[sandbox] = shared.held[sandbox] = ()
            await both.give_back(sandbox, wanted(stdin))
            assert not sliced.held
            assert not shared.held
            assert looked_at == shared.looked_at
            await both.collect("net", frozenset())
            assert ["net"] == sliced.collected == shared.collected

        story()
