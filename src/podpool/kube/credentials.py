"""Credentials from a plugin: a program that prints a token or a certificate, and until when it is good.

It is asked again when that time is over, or when the API server does not know the credential any more. It runs once for
all who wait, and to its end even when they give up: who asks next finds what it printed.
"""

import asyncio
import base64
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from yarl import URL

from podpool.core.errors import InvalidInput
from podpool.kube.kubeconfig import ExecPlugin, KubeconfigCluster
from podpool.runtime.clock import Clock
from podpool.runtime.http import Headers, HttpTransport
from podpool.runtime.transport import Request, Response, Unreachable

EXPIRY_MARGIN = 10.0
"""Seconds before its end from which on a credential is not used any more."""
UNKNOWN = 401


class ExecCredentialStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a plugin gives."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with every request."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


class ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a plugin prints."""

    api_version: str
    status: ExecCredentialStatus


_PRINTED = msgspec.json.Decoder(ExecCredential)
Open = Callable[[ExecCredentialStatus, Headers], HttpTransport]


class ExecPluginTransport:
    """The road to an API server that a plugin's credentials open."""

    def __init__(
        self, plugin: ExecPlugin, cluster: KubeconfigCluster, road: Open, *, clock: Clock, environ: Mapping[str, str]
    ) -> None:
        if plugin.interactive_mode == "Always":
            raise InvalidInput("user", plugin.command, "asks a person for credentials; use one that needs nobody")
        self.base = URL(cluster.server)
        self._plugin = plugin
        self._cluster = cluster
        self._open = road
        self._clock = clock
        self._environ = environ
        self._credential: ExecCredentialStatus | None = None
        self._road: HttpTransport | None = None
        self._running: asyncio.Task[ExecCredentialStatus] | None = None

    async def send(self, request: Request) -> Response:
        """Send a request with a good credential; one that is not known any more is renewed, once."""
        credential, road = await self._ready()
        response = await road.send(request)
        if response.status != UNKNOWN:
            return response
        await response.read()
        if self._credential is credential:
            self._credential = None
        _, road = await self._ready()
        return await road.send(request)

    async def close(self) -> None:
        """Close every connection, and end a plugin that still runs."""
        if self._running:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._road:
            await self._road.close()
            self._road = None

    async def _ready(self) -> tuple[ExecCredentialStatus, HttpTransport]:
        credential = self._credential
        if credential is None or self._ended(credential):
            credential = await self._renewed()
        if self._road is None:
            self._road = self._open(credential, lambda: self._credential.headers if self._credential else {})
        return credential, self._road

    async def _renewed(self) -> ExecCredentialStatus:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(_noted)  # its failure is told to who waits, if anybody still does
        new, old = await asyncio.shield(self._running), self._credential
        if old is not new:
            self._credential = new
            if old and self._road and old.client_certificate_data != new.client_certificate_data:
                road, self._road = self._road, None
                await road.close()
        return new

    def _ended(self, credential: ExecCredentialStatus) -> bool:
        end = credential.expiration_timestamp
        return end is not None and self._clock.wall() >= end.timestamp() - EXPIRY_MARGIN

    async def _run(self) -> ExecCredentialStatus:
        plugin = self._plugin
        told = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(self._info()).decode()}
        own = {each.name: each.value for each in plugin.env or ()}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *(plugin.args or ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self._environ, **own, **told},
                start_new_session=True,
            )
        except OSError as error:
            raise self._failed(f"{error.strerror}. {plugin.install_hint}") from error
        try:
            printed, complaint = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started: that holds the pipes too
            await process.communicate()
            raise
        if process.returncode:
            raise self._failed(complaint.decode(errors="replace") or f"it ended with {process.returncode}")
        try:
            return _PRINTED.decode(printed).status
        except msgspec.DecodeError as error:
            raise self._failed(f"what it printed cannot be read: {error}") from error

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.provide_cluster_info:
            told = msgspec.to_builtins(self._cluster)
            if path := told.pop("certificate-authority"):
                told["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
            spec["cluster"] = {each: value for each, value in told.items() if value}
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _failed(self, why: str) -> Unreachable:
        return Unreachable(str(self.base), f"no credential from {self._plugin.command}: {why.strip()}")


def _noted(task: asyncio.Task[ExecCredentialStatus]) -> None:
    if not task.cancelled():
        task.exception()
