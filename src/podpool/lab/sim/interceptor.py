"""Interceptors of API requests: one checks what an agent knew when it wrote, one injects API errors.

After each start an agent may change its request only after it has read its Pods, its NNC and its subnet. Its
confirmation counts from when it sent the last answered quorum reads of its Node and NNC, or NodeSlices. The interceptor
sees which requests were answered, not what the agent concluded.
"""

import asyncio
import json
import random
from collections.abc import Callable

import msgspec

from podpool.lab.sim.address_use_oracle import Violation
from podpool.runtime.transport import Handler, Request, Response, Transport

REQUIRED_READS = ("pods", "nodenetworkconfigs", "clustersubnets")
CONFIRMING_READS = ("nodes", "nodenetworkconfigs")
SLICE_CONFIRMING_READS = ("nodes", "nodeslices")
FAILING_PATCHES = {"ippools", "leases", "nodeslices"}
INJECTED_ERRORS = {409: "Conflict", 422: "Invalid", 500: "InternalError"}


class AgentInterceptor:
    """The transport of one agent process, which reports writes that come too early."""

    def __init__(
        self, transport: Transport, *, machine: str, report: Callable[[Violation], None], reads: dict[str, float]
    ) -> None:
        self._transport = transport
        self._machine = machine
        self._report = report
        self._reads = reads
        """When the last answered confirming reads were sent, by resource."""
        self._known: set[str] = set()

    async def send(self, request: Request) -> Response:
        """Pass a request on, and record the answered reads."""
        if len(self._known) < len(REQUIRED_READS) and _changes_request(request):
            unknown = [each for each in REQUIRED_READS if each not in self._known]
            detail = f"the agent of {self._machine} changed its request before it had read {', '.join(unknown)}"
            self._report(Violation("complete input", detail))
        sent = asyncio.get_running_loop().time()
        response = await self._transport.send(request)
        if response.status == 200:
            parts = request.path.split("/")
            if request.method == "GET":
                self._known.update(each for each in REQUIRED_READS if each in parts)
            read = _confirming_read(request.method, parts, self._machine)
            if read:
                self._reads[read] = max(sent, self._reads.get(read, sent))  # responses may be reordered
        return response


def _confirming_read(method: str, parts: list[str], machine: str) -> str | None:
    """Return the resource that a request reads by name, or writes over the version that was read."""
    if method == "PATCH" and parts[-3:] == ["nodeslices", machine, "status"]:
        return "nodeslices"
    found = parts[-2] if len(parts) > 1 and parts[-1] == machine else None
    return found if method == "GET" and found in {*CONFIRMING_READS, *SLICE_CONFIRMING_READS} else None


def _changes_request(request: Request) -> bool:
    if request.method != "PATCH" or "nodenetworkconfigs" not in request.path.split("/"):
        return False
    return "requestedIPCount" in msgspec.json.decode(request.body).get("spec", {})


class ApiErrorInjector:
    """Wraps an API server, and fails a share of the patches of NodeSlices, IPPools and Leases."""

    def __init__(self, handler: Handler, rng: random.Random) -> None:
        self.share = 0.0
        """The share of patches that fail."""
        self._handler = handler
        self._rng = rng

    async def __call__(self, request: Request) -> Response:
        """Return an injected error, or the server's response."""
        affected = self.share and request.method == "PATCH" and FAILING_PATCHES & {*request.path.split("/")}
        if not affected or self._rng.random() >= self.share:
            return await self._handler(request)
        code = self._rng.choice(sorted(INJECTED_ERRORS))
        reason, message = INJECTED_ERRORS[code], "injected error"
        status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": message}
        return Response(code, json.dumps(status).encode(), headers={"content-type": "application/json"})
