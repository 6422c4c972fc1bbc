"""CNI requests of the plugin: ADD, DEL, CHECK, GC, STATUS and VERSION.

A configuration is served from the node's pool (`pool_ipam`) or, if it has ranges, from slices and shared ranges
(`secondary`). Whatever the runtime sends, it gets a response. ADD is idempotent per attachment. A DEL of an unknown
sandbox succeeds; a DEL releases what its own sandbox has and nothing else. DELs that the plugin left in a directory
while no agent ran are processed before any ADD; one that cannot be read or removed stays, and blocks nothing. A GC
releases what the runtime no longer lists in its network. STATUS reports whether an ADD could be served, not whether
addresses are available: a failing STATUS makes the node NotReady and evicts its Pods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from podpool.agent.abandoned_adds import AbandonedAdds
from podpool.agent.cni_add_options import parse_pool_options
from podpool.agent.demand import AddRequest
from podpool.agent.deps import AgentDeps
from podpool.agent.netns import recorded_netns
from podpool.agent.node_confirmation import NodeConfirmation
from podpool.agent.pool_ipam import PoolIPAM
from podpool.agent.scaling_input_collector import InputCollector
from podpool.agent.secondary.router import AddressRequest, pod_identity, reject_ranges
from podpool.agent.secondary.secondary_networks import SecondaryNetworks
from podpool.agent.state import AgentState
from podpool.cni import protocol as cni
from podpool.core.addresses import Address
from podpool.core.errors import PodpoolError
from podpool.runtime.disk import Disk
from podpool.runtime.logging import OnceLogger

DEFERRED_DELETE_INTERVAL = 15.0
"""Seconds between two checks for DELs that a plugin left because this agent did not answer in time."""

Command = Callable[[cni.PluginRequest], Awaitable[cni.PluginResponse]]


class CNIHandler:
    """Answers requests, any number at once."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        ipam: PoolIPAM,
        secondary: SecondaryNetworks | None,
        inputs: InputCollector,
        confirmation: NodeConfirmation,
        abandoned_adds: AbandonedAdds,
    ) -> None:
        self._deps = deps
        self._log = deps.log
        self._state = state
        self._ipam = ipam
        self._secondary = secondary
        self._inputs = inputs
        self._confirmation = confirmation
        self._abandoned_adds = abandoned_adds
        self._logged: set[str] = set()
        """Deferred DELs whose failure was logged; empty for their directory."""
        self._once_log = OnceLogger(deps.log)
        """Networks whose keys without effect were logged."""
        self._commands: Mapping[str, Command] = {
            "ADD": self._add,
            "DEL": self._delete,
            "CHECK": self._check,
            "GC": self._gc,
            "STATUS": self._status,
            "VERSION": self._version,
        }

    async def handle(self, body: bytes) -> bytes:
        """Answer the body of a request with the body of a response."""
        try:
            request = cni.decode_request(body)
        except cni.CniError as error:
            refusal = error
        except cni.BadFrame as error:
            refusal = cni.CniError(cni.ErrorCode.DECODE_FAILURE, str(error))
        else:
            return cni.encode_response(await self._respond(request))
        return cni.encode_response(cni.error_result(refusal, "1.0.0"))

    async def _respond(self, request: cni.PluginRequest) -> cni.PluginResponse:
        try:
            unopened = None if self._state.opened else self._state.write_error
            return _io_error(request, unopened) if unopened else await self._command(request.command)(request)
        except OSError as error:
            return _io_error(request, str(error))
        except cni.CniError as error:
            refusal = error
        except PodpoolError:
            raise  # without a response the plugin retries
        except Exception:  # noqa: BLE001  a defect: the runtime gets an error, other requests are served
            self._log.exception("request failed", command=request.command, sandbox=request.container_id)
            refusal = cni.CniError(cni.ErrorCode.INTERNAL, "internal error of the podpool agent: see its log")
        return cni.error_result(refusal, cni.requested_version(request.stdin))

    async def run(self) -> None:
        """Process deferred DELs at an interval, until cancelled."""
        while True:
            await asyncio.sleep(DEFERRED_DELETE_INTERVAL)
            self.process_deferred_deletes()

    def process_deferred_deletes(self) -> None:
        """Process the DELs that were left while no agent answered, before the next ADD of the same sandbox."""
        directory = self._deps.deferred_deletes
        if directory is None:
            return
        try:
            names = directory.names()
        except OSError as error:
            self._warn_once("cannot list deferred DELs", error)
            return
        self._logged.intersection_update(names)
        for name in names:
            try:
                self._process_deferred(directory, name)
            except OSError as error:
                self._warn_once("cannot process a deferred DEL, retrying", error, file=name)
        if names:
            self._deps.changes.notify()

    async def _version(self, _request: cni.PluginRequest) -> cni.PluginResponse:
        return cni.version_result()

    async def _add(self, request: cni.PluginRequest) -> cni.PluginResponse:
        attachment = cni.parse_attachment(request)
        add = self._allocate(request, attachment)
        return await self._abandoned_adds.undo_if_cancelled(attachment, add, self._log)

    async def _allocate(self, request: cni.PluginRequest, attachment: cni.Attachment) -> cni.PluginResponse:
        config = cni.parse_config(request.stdin)
        wanted = await self._secondary_request(request)
        self.process_deferred_deletes()
        if wanted and self._secondary:
            if wanted.config.sliced:
                self._confirmation.on_add(self._state.node_fence)
            return _secondary_result(wanted, await self._secondary.router.allocate(wanted), config.cni_version)
        netns = recorded_netns(request.netns)
        options = parse_pool_options(request)
        self._report_ignored(config.name, options.ignored)
        pod, addresses = pod_identity(request), options.addresses
        add = AddRequest(
            attachment=attachment,
            pod=pod,
            network=config.name,
            netns=netns,
            addresses=addresses,
            behind_node=options.behind_node,
        )
        self._confirmation.on_add(self._state.fence)
        return cni.add_result(await self._ipam.allocate(add), config.cni_version, extras=options.extras)

    def _report_ignored(self, network: str, keys: tuple[str, ...]) -> None:
        """Log the keys of a network that have no effect, once."""
        if keys:
            event = "network configuration has keys that have no effect on the node's pool"
            self._once_log.warning(event, key=network, network=network, keys=", ".join(keys))

    async def _delete(self, request: cni.PluginRequest) -> cni.PluginResponse:
        attachment = cni.parse_attachment(request)
        if self._secondary:
            await self._secondary.router.read_flat_file(request)
        wanted = self._release(attachment, request)
        self._deps.changes.notify()
        if self._secondary:
            await self._secondary.router.release(attachment, wanted)
        return cni.PluginResponse()

    async def _check(self, request: cni.PluginRequest) -> cni.PluginResponse:
        config = cni.parse_config(request.stdin, command=request.command)
        attachment, wanted = cni.parse_attachment(request), await self._secondary_request(request)
        if wanted and self._secondary:
            assigned = tuple(map(str, await self._secondary.router.check(wanted)))
        else:
            assigned = self._ipam.check(attachment)
        if not assigned and not (wanted and not wanted.ranges):
            interface = f"interface {attachment.ifname} of sandbox {attachment.container_id}"
            raise cni.CniError(cni.ErrorCode.CHECK_MISMATCH, f"{interface} has no address assigned")
        expected = cni.prev_result_addresses(config)
        if expected and not set(assigned) <= set(expected):
            difference = f"prevResult has {', '.join(expected)}, the agent assigned {', '.join(assigned)}"
            raise cni.CniError(cni.ErrorCode.CHECK_MISMATCH, difference)
        return cni.PluginResponse()

    async def _gc(self, request: cni.PluginRequest) -> cni.PluginResponse:
        config = cni.parse_config(request.stdin, command=request.command)
        if config.valid_attachments is msgspec.UNSET:
            raise cni.CniError(
                cni.ErrorCode.INVALID_CONFIG, "a GC without cni.dev/valid-attachments would release everything"
            )
        valid = frozenset(config.valid_attachments or ())
        self._ipam.collect_garbage(config.name, valid)
        self._deps.changes.notify()
        if self._secondary:
            await self._secondary.router.collect_garbage(config.name, valid)
        return cni.PluginResponse()

    async def _status(self, request: cni.PluginRequest) -> cni.PluginResponse:
        cni.parse_config(request.stdin, command=request.command)
        secondary = self._secondary if await self._secondary_request(request) else None
        self._confirmation.on_add(self._state.node_fence if secondary else self._state.fence)
        reason = secondary.not_ready_reason() if secondary else self._inputs.not_ready_reason()
        if reason:
            raise cni.CniError(cni.ErrorCode.UNAVAILABLE, reason)
        return cni.PluginResponse()

    async def _secondary_request(self, request: cni.PluginRequest) -> AddressRequest | None:
        """Return the ranges that a request is about; None when it is about the node's pool."""
        if self._secondary:
            await self._secondary.router.read_flat_file(request)
            return self._secondary.router.parse(request)
        reject_ranges(request.stdin)
        return None

    def _release(self, attachment: cni.Attachment, request: cni.PluginRequest) -> AddressRequest | None:
        """Release what a sandbox has on this node, whatever its configuration; return the ranges of that."""
        self._ipam.schedule_release(attachment)
        if self._secondary is None:
            return None
        self._secondary.slice_ipam.schedule_release(attachment)
        try:
            return self._secondary.router.parse(request)
        except cni.CniError as error:
            pod = pod_identity(request).qualified_name
            self._log.warning(
                "DEL has an invalid configuration, released by sandbox ID",
                pod=pod,
                sandbox=attachment.container_id,
                error=error,
            )
            return None

    def _process_deferred(self, directory: Disk, name: str) -> None:
        try:
            request = cni.decode_request(directory.read(name) or b"")
            attachment = cni.parse_attachment(request)
        except (cni.BadFrame, cni.CniError) as error:
            self._log.warning("deferred DEL is invalid, its file is removed", file=name, error=error)
        else:
            wanted = self._release(attachment, request)
            if self._secondary:
                self._secondary.router.schedule_release(attachment, wanted)
        directory.remove(name)

    def _warn_once(self, event: str, error: OSError, *, file: str = "") -> None:
        """Log a failure once: it is retried every few seconds."""
        if file not in self._logged:
            self._logged.add(file)
            self._log.warning(event, file=file, error=error)

    def _command(self, name: str) -> Command:
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(self._commands)
            raise cni.CniError(
                cni.ErrorCode.INVALID_ENVIRONMENT, f"unknown CNI_COMMAND {name!r}", f"supported: {known}"
            )
        return command


def _io_error(request: cni.PluginRequest, reason: str) -> cni.PluginResponse:
    """Return that the journal cannot be written; for STATUS, that no address can be assigned."""
    code = cni.ErrorCode.UNAVAILABLE if request.command == "STATUS" else cni.ErrorCode.IO_FAILURE
    error = cni.CniError(code, "the agent cannot write its journal: check the node's disk", reason)
    return cni.error_result(error, cni.requested_version(request.stdin))


def _secondary_result(wanted: AddressRequest, addresses: tuple[Address, ...], version: str) -> cni.PluginResponse:
    """Return the result for addresses of ranges, with routes and DNS of the configuration."""
    assigned = wanted.config.interface_addresses(addresses)
    ips = [
        cni.IPConfig(address=each.address, prefix=each.prefix.length, gateway=str(each.gateway or ""))
        for each in assigned
    ]
    extras = cni.ResultExtras(routes=wanted.config.routes, dns=msgspec.to_builtins(wanted.config.dns))
    return cni.add_result(ips, version, extras=extras)
