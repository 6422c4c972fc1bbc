"""Routing of plugin requests to address sources."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.flat_file import FlatFileUnavailable
from podpool.agent.secondary.router import FLAT_FILE_MAX_AGE, AddressRequest, Router
from podpool.cni.protocol import Attachment, CniError, ErrorCode, PluginRequest
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.kube.client import KubeClient
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.agent.node_env import LogLines
from tests.agent.secondary.test_shared_range_journal import NoTransport
from tests.kube.event_loops import run_in_loop

ARGS = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0"
MIXED = b"""{"name": "net", "ipam": {"type": "podpool", "ipRanges": [
    {"range": "10.1.0.0/16", "node_slice_size": "/24"}, {"range": "10.2.0.0/16"},
    {"range": "fd00::/64", "node_slice_size": "/120"}]}}"""

SLICED = b'{"name": "net", "ipam": {"type": "podpool", "range": "10.1.0.0/16", "node_slice_size": "/24"}}'
FLAT = b'{"range": "10.7.0.0/16", "node_slice_size": "/24"}'
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


def deps(read: Callable[[str], Awaitable[bytes | None]], clock: SetClock) -> AgentDeps:
    return AgentDeps(
        node="a",
        boot_id="boot-1",
        kube=KubeClient(NoTransport()),
        disk=MemoryDisk(),
        clock=clock,
        rng=random.Random(1),  # noqa: S311  seeded
        read_flat_file=read,
    )


def router(
    sliced: FakeSource | None = None,
    shared: FakeSource | None = None,
    flat_file: bytes | InvalidInput | None = None,
) -> Router:
    async def read(_path: str) -> bytes | None:
        if isinstance(flat_file, InvalidInput):
            raise flat_file
        return flat_file

    return Router(deps(read, SetClock()), sliced=sliced or FakeSource(), shared=shared or FakeSource())


def request(stdin: bytes, *, command: str = "ADD", args: str = ARGS) -> PluginRequest:
    return PluginRequest(command=command, container_id="a", ifname="net1", args=args, stdin=stdin)


def parsed(stdin: bytes) -> AddressRequest:
    found = router().parse(request(stdin))
    assert found
    return found


def parsed_with_file(stdin: bytes, flat_file: bytes | InvalidInput | None) -> AddressRequest | None:
    reading = router(flat_file=flat_file)
    asyncio.run(reading.read_flat_file(request(stdin)))
    return reading.parse(request(stdin))


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
        assert router().parse(request(stdin)) is None

    @pytest.mark.parametrize(
        "stdin",
        [
            b'{"ipam": {"type": "podpool", "Range": "10.0.0.0/8"}}',
            b'{"ipam": {"type": "whereabouts", "ipRanges": [{"range": "10.0.0.0/8"}]}}',
            b'{"ipam": {"type": "whereabouts"}}',
        ],
    )
    def test_a_configuration_with_ranges_or_of_whereabouts_is_not(self, stdin: bytes) -> None:
        assert router().parse(request(stdin))

    def test_the_flat_file_fills_empty_keys(self) -> None:
        found = parsed_with_file(b'{"ipam": {"type": "whereabouts"}}', FLAT)
        assert found
        assert ["10.7.0.0/16"] == [str(each.prefix) for each in found.ranges]

    def test_the_flat_file_does_not_apply_to_the_node_pool(self) -> None:
        assert None is parsed_with_file(b'{"ipam": {"type": "podpool", "ipRanges": []}}', FLAT)

    def test_an_empty_flat_file_is_rejected(self) -> None:
        with pytest.raises(CniError, match="flat file") as caught:
            parsed_with_file(ONE, b"")
        assert ErrorCode.INVALID_CONFIG is caught.value.code

    def test_the_flat_file_is_read_again_after_some_seconds(self) -> None:
        reads: list[str] = []
        clock = SetClock()

        async def read(path: str) -> bytes | None:
            reads.append(path)
            return FLAT

        @run_in_loop
        async def body() -> None:
            reading = Router(deps(read, clock), sliced=FakeSource(), shared=FakeSource())
            own = request(b'{"ipam": {"type": "whereabouts", "configuration_path": "/own"}}')
            for _ in range(3):
                await reading.read_flat_file(own)
            clock.pass_time(FLAT_FILE_MAX_AGE)
            await reading.read_flat_file(own)

        body()
        assert ["/own", "/own"] == reads

    def test_the_last_content_is_used_while_the_flat_file_cannot_be_read(self) -> None:
        """Its file system hangs: the configuration is as valid as before."""
        contents: list[bytes | FlatFileUnavailable] = [FlatFileUnavailable("x"), FLAT, FlatFileUnavailable("x")]

        async def read(_path: str) -> bytes | None:
            content = contents.pop(0)
            if isinstance(content, FlatFileUnavailable):
                raise content
            return content

        async def run() -> None:
            clock, own = SetClock(), request(b'{"ipam": {"type": "whereabouts"}}')
            reading = Router(deps(read, clock), sliced=FakeSource(), shared=FakeSource())
            await reading.read_flat_file(own)
            with pytest.raises(CniError) as caught:
                reading.parse(own)
            assert ErrorCode.TRY_AGAIN_LATER is caught.value.code
            for _ in range(2):
                await reading.read_flat_file(own)
                found = reading.parse(own)
                assert found
                assert ["10.7.0.0/16"] == [str(each.prefix) for each in found.ranges]
                clock.pass_time(FLAT_FILE_MAX_AGE)

        asyncio.run(run())
        assert [] == contents

    def test_unknown_keys_are_logged_once_per_network(self) -> None:
        lines = LogLines()
        lines.attach()
        try:
            routing = router()
            for _ in range(2):
                own = request(b'{"name": "red", "ipam": {"type": "whereabouts", "fork": 1}}')
                assert routing.parse(own)
        finally:
            lines.detach()
        (warning,) = lines.warnings
        assert "unknown keys" in warning
        assert "keys=fork" in warning
        assert "network=red" in warning

    def test_invalid_configurations_are_rejected_with_the_reason(self) -> None:
        bad = b'{"ipam": {"type": "whereabouts", "range": "foo"}}'
        for stdin, flat_file in ((bad, None), (ONE, InvalidInput("configuration_path", "/x", "is a directory"))):
            with pytest.raises(CniError) as caught:
                parsed_with_file(stdin, flat_file)
            assert ErrorCode.INVALID_CONFIG is caught.value.code

    @pytest.mark.parametrize(
        "flat", [b"secret", b'{"range": "secret"}', b'{"range": 7, "x": "secret"}', b'{"routes": [{"dst": "secret"}]}']
    )
    def test_errors_do_not_contain_what_the_flat_file_contains(self, flat: bytes) -> None:
        with pytest.raises(CniError, match="flat file") as caught:
            parsed_with_file(b'{"ipam": {"type": "whereabouts"}}', flat)
        assert "secret" not in str(caught.value)

    def test_an_error_in_the_configuration_itself_is_shown_also_with_a_flat_file(self) -> None:
        with pytest.raises(CniError, match="range 'foo'"):
            parsed_with_file(b'{"ipam": {"type": "whereabouts", "range": "foo"}}', FLAT)

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
            router().parse(request(ONE, args=args))
        assert ErrorCode.INVALID_ENVIRONMENT is caught.value.code
        assert caught.value.message.startswith(("CNI_ARGS", "IgnoreUnknown"))

    @pytest.mark.parametrize("args", ["", "FOO", f"{ARGS};IP=foo"])
    def test_only_an_add_needs_a_pod(self, args: str) -> None:
        assert router().parse(request(ONE, command="DEL", args=args))


class TestRouting:
    @run_in_loop
    async def test_without_a_range_or_flat_file_the_add_fails_and_names_both(self) -> None:
        with pytest.raises(CniError, match="no range.*flat file") as caught:
            await router().allocate(parsed(b'{"ipam": {"type": "whereabouts"}}'))
        assert ErrorCode.INVALID_CONFIG is caught.value.code

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
