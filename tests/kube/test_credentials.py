"""Credentials from a program: asked when they are needed, and no more often."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from podpool.core.errors import InvalidInput
from podpool.kube import credentials
from podpool.kube.client_config import Connection, from_kubeconfig
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request, Response, Unreachable
from tests.kube.api_servers import FixedClock
from tests.kube.event_loops import run_in_loop

NOW = 1_700_000_000.0


class Server:
    """A server that accepts some tokens, and a plugin that prints the next one each time and saves its input."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.known = {"token-1", "token-2", "token-3"}
        self.seen: list[str] = []
        self.clock = FixedClock(NOW)

    async def answer(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.seen.append(token)
        return Response(200 if token in self.known else 401, b"{}")

    @property
    def runs(self) -> int:
        """How often the plugin has run."""
        runs = self.home / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    @property
    def plugin_input(self) -> dict[str, Any]:
        """The last input of the plugin."""
        found: dict[str, Any] = json.loads((self.home / "plugin-input").read_text())
        return found

    def plugin(self, *, valid_for: float | None = None, first: str = "") -> dict[str, Any]:
        """Write the plugin, and how a kubeconfig names it; what it does first may fail."""
        status = {"token": "token-@"}
        if valid_for is not None:
            status["expirationTimestamp"] = datetime.fromtimestamp(NOW + valid_for, UTC).isoformat()
        printed = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        script = f"""#!/bin/sh
            cd {self.home}
            {first}
            echo run >>runs
            echo "$KUBERNETES_EXEC_INFO" >plugin-input
            echo '{json.dumps(printed)}' | sed "s/@/$(wc -l <runs | tr -d ' ')/"
        """
        path = self.home / "plugin"
        path.write_text(script)
        path.chmod(0o755)
        return {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "args": None, "env": None}

    @asynccontextmanager
    async def connected(self, plugin: dict[str, Any]) -> AsyncIterator[Connection]:
        async with serving(self.answer, host="127.0.0.1", port=0) as port:
            config = {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {"exec": plugin}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            (self.home / "config").write_text(json.dumps(config))
            transport = from_kubeconfig(self.home / "config", clock=self.clock)
            try:
                yield transport
            finally:
                await transport.close()


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


async def status(transport: Connection) -> int:
    response = await transport.send(Request(method="GET", path="/"))
    await response.read()
    return response.status


@run_in_loop
async def test_a_plugin_runs_once_for_all_who_wait(server: Server) -> None:
    async with server.connected(server.plugin()) as transport:
        assert [200] * 5 == await asyncio.gather(*(status(transport) for _ in range(5)))
        assert (1, {"token-1"}) == (server.runs, set(server.seen))
        assert {"interactive": False} == server.plugin_input["spec"]


@run_in_loop
async def test_it_runs_again_when_its_credential_has_ended(server: Server) -> None:
    async with server.connected(server.plugin(valid_for=60)) as transport:
        await status(transport)
        server.clock.seconds = NOW + 49
        await status(transport)
        assert 1 == server.runs
        server.clock.seconds = NOW + 51
        await status(transport)
        assert ["token-1", "token-1", "token-2"] == server.seen


@run_in_loop
async def test_it_runs_again_when_the_server_does_not_know_the_credential(server: Server) -> None:
    server.known = {"token-2"}
    async with server.connected(server.plugin()) as transport:
        assert 200 == await status(transport)
        assert ["token-1", "token-2"] == server.seen
        server.known = set()
        assert 401 == await status(transport)
        assert 3 == server.runs


async def give_up(transport: Connection) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await status(transport)


@run_in_loop
async def test_who_gives_up_does_not_stop_it(server: Server) -> None:
    async with server.connected(server.plugin(first="while ! [ -e go ]; do sleep 0.01; done")) as transport:
        await give_up(transport)
        (server.home / "go").touch()
        assert 200 == await status(transport)
        assert 1 == server.runs


@run_in_loop
async def test_one_that_fails_after_all_have_given_up_runs_again(server: Server) -> None:
    fails = "[ -e again ] || { while ! [ -e go ]; do sleep 0.01; done; touch again; exit 3; }"
    async with server.connected(server.plugin(first=fails)) as transport:
        await give_up(transport)
        (server.home / "go").touch()
        try:
            answer = await status(transport)
        except Unreachable:  # this one still waited for the first run
            answer = await status(transport)
        assert (200, 1) == (answer, server.runs)


@run_in_loop
async def test_one_that_still_runs_ends_with_the_connection(server: Server) -> None:
    async with server.connected(server.plugin(first="sleep 600")) as transport:
        await give_up(transport)
    assert 0 == server.runs


@pytest.mark.parametrize("iterations", range(12))
@run_in_loop
async def test_it_ends_whenever_the_connection_is_closed(server: Server, iterations: int) -> None:
    async with server.connected(server.plugin(first="sleep 600")) as transport:
        waiting = asyncio.ensure_future(status(transport))
        for _ in range(iterations):
            await asyncio.sleep(0)
        await transport.close()
        waiting.cancel()
    assert 0 == server.runs


@run_in_loop
async def test_one_that_hangs_is_killed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_TIMEOUT", 0.05)
    async with server.connected(server.plugin(first="sleep 600")) as transport:
        with pytest.raises(Unreachable, match="it did not end within 0 s"):
            await status(transport)


@run_in_loop
async def test_the_cluster_is_passed_if_configured(server: Server) -> None:
    async with server.connected(server.plugin() | {"provideClusterInfo": True}) as transport:
        await status(transport)
        assert {"server": str(transport.base).rstrip("/")} == server.plugin_input["spec"]["cluster"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda server: server.plugin(first="echo no such account >&2; exit 3"), "plugin: no such account"),
        (lambda server: server.plugin(first="exit 3"), "exit code 3"),
        (lambda server: server.plugin(first="echo hello; exit 0"), "cannot decode its output"),
        (
            lambda server: {**server.plugin(), "command": "./none", "installHint": "Install it from the store."},
            "none: No such file or directory. Install it from the store.",
        ),
    ],
)
@run_in_loop
async def test_a_failing_plugin_is_reported_with_its_reason(
    server: Server, change: Callable[[Server], dict[str, Any]], reason: str
) -> None:
    async with server.connected(change(server)) as transport:
        with pytest.raises(Unreachable, match=reason):
            await status(transport)


@run_in_loop
async def test_an_interactive_plugin_is_rejected(server: Server) -> None:
    with pytest.raises(InvalidInput, match="needs an interactive terminal"):
        async with server.connected(server.plugin() | {"interactiveMode": "Always"}):
            pass
