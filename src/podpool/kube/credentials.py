"""Credentials from an exec plugin: a program that prints a token or a certificate with its expiration.

It runs again when the credential expires or the API server rejects it. Concurrent requests share one run. A run
continues when its callers are cancelled: the next request uses its result.
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
from podpool.runtime.http_client import Headers, HttpTransport
from podpool.runtime.transport import Request, Response, Unreachable

EXPIRY_MARGIN = 10.0
"""Seconds before its expiration at which a credential is renewed."""
PLUGIN_TIMEOUT = 60.0
"""Seconds that a plugin may run."""
UNAUTHORIZED = 401


class ExecCredentialStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A credential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


class ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The output of a plugin."""

    api_version: str
    status: ExecCredentialStatus


_OUTPUT = msgspec.json.Decoder(ExecCredential)
OpenTransport = Callable[[ExecCredentialStatus, Headers], HttpTransport]


class ExecPluginTransport:
    """Transport to an API server with the credentials of an exec plugin."""

    def __init__(
        self,
        plugin: ExecPlugin,
        cluster: KubeconfigCluster,
        open_transport: OpenTransport,
        *,
        clock: Clock,
        environ: Mapping[str, str],
    ) -> None:
        if plugin.interactive_mode == "Always":
            interactive = "needs an interactive terminal (interactiveMode: Always); use a plugin that does not"
            raise InvalidInput("user", plugin.command, interactive)
        self.base = URL(cluster.server)
        self._plugin = plugin
        self._cluster = cluster
        self._open_transport = open_transport
        self._clock = clock
        self._environ = environ
        self._credential: ExecCredentialStatus | None = None
        self._transport: HttpTransport | None = None
        self._running: asyncio.Task[ExecCredentialStatus] | None = None

    async def send(self, request: Request) -> Response:
        """Send a request; if its credential is rejected, renew it and send the request once more."""
        credential, transport = await self._ready()
        response = await transport.send(request)
        if response.status != UNAUTHORIZED:
            return response
        await response.read()
        if self._credential is credential:
            self._credential = None
        _, transport = await self._ready()
        return await transport.send(request)

    async def close(self) -> None:
        """Close every connection and stop a running plugin."""
        if self._running:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._transport:
            await self._transport.close()
            self._transport = None

    async def _ready(self) -> tuple[ExecCredentialStatus, HttpTransport]:
        credential = self._credential
        if credential is None or self._expired(credential):
            credential = await self._renewed()
        if self._transport is None:
            self._transport = self._open_transport(
                credential, lambda: self._credential.headers if self._credential else {}
            )
        return credential, self._transport

    async def _renewed(self) -> ExecCredentialStatus:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(_consume_exception)  # callers receive it, if any still wait
        new, old = await asyncio.shield(self._running), self._credential
        if old is not new:
            self._credential = new
            if old and self._transport and old.client_certificate_data != new.client_certificate_data:
                transport, self._transport = self._transport, None
                await transport.close()
        return new

    def _expired(self, credential: ExecCredentialStatus) -> bool:
        expiration = credential.expiration_timestamp
        return expiration is not None and self._clock.wall() >= expiration.timestamp() - EXPIRY_MARGIN

    async def _run(self) -> ExecCredentialStatus:
        """Run the plugin, and return its credential."""
        try:
            exit_code, stdout, stderr = await self._execute()
        except TimeoutError as error:
            raise self._failed(f"it did not end within {PLUGIN_TIMEOUT:.0f} s") from error
        except OSError as error:
            raise self._failed(f"{error.strerror}. {self._plugin.install_hint}") from error
        if exit_code:
            raise self._failed(stderr.decode(errors="replace") or f"exit code {exit_code}")
        try:
            return _OUTPUT.decode(stdout).status
        except (ValueError, RecursionError) as error:
            raise self._failed(f"cannot decode its output: {error}") from error

    async def _execute(self) -> tuple[int | None, bytes, bytes]:
        """Run the plugin to its end, or kill it with its children; cancelled halfway, a start would leave them."""
        info = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(self._info()).decode()}
        own = {each.name: each.value for each in self._plugin.env or ()}
        start = asyncio.create_subprocess_exec(
            self._plugin.command,
            *(self._plugin.args or ()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._environ, **own, **info},
            start_new_session=True,
        )
        started = asyncio.ensure_future(start)
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT):
                process = await asyncio.shield(started)
                stdout, stderr = await process.communicate()
                return process.returncode, stdout, stderr
        except (TimeoutError, asyncio.CancelledError):
            await _kill(started)
            raise

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.provide_cluster_info:
            cluster = msgspec.to_builtins(self._cluster)
            if path := cluster.pop("certificate-authority"):
                cluster["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
            spec["cluster"] = {each: value for each, value in cluster.items() if value}
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _failed(self, why: str) -> Unreachable:
        return Unreachable(str(self.base), f"no credential from {self._plugin.command}: {why.strip()}")


async def _kill(started: asyncio.Future[asyncio.subprocess.Process]) -> None:
    """Kill a plugin and its children, if it was started."""
    with suppress(OSError):
        process = await started
        os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


def _consume_exception(task: asyncio.Task[ExecCredentialStatus]) -> None:
    if not task.cancelled():
        task.exception()
