"""Which way leads to the API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parts.control_plane import ControlPlane
from podpool.api.builtin import NAMESPACES
from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig, proxy_for
from tests.kube.event_loops import run_in_loop

PROXY = {"HTTPS_PROXY": "http://proxy.test:3128", "HTTP_PROXY": "http://plain.test:3128"}


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://api.test", {}, None),
        ("https://api.test", PROXY, "http://proxy.test:3128"),
        ("http://api.test", PROXY, "http://plain.test:3128"),
        ("https://api.test", {"https_proxy": "proxy.test:3128"}, "http://proxy.test:3128"),
        ("https://127.0.0.1:6443", PROXY, None),
        ("https://[::1]:6443", PROXY, None),
        ("https://localhost", PROXY, None),
        ("https://10.0.0.1", PROXY | {"NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.0.0.1", PROXY | {"NO_PROXY": "10.0.0.0/8, 192.0.2.1"}, "http://proxy.test:3128"),
        ("https://[fd00::1]", PROXY | {"NO_PROXY": "fd00::/8"}, None),
        ("https://192.0.2.1", PROXY | {"no_proxy": "10.0.0.0/8, 192.0.2.1"}, None),
        ("https://api.corp.test", PROXY | {"NO_PROXY": "corp.test"}, None),
        ("https://corp.test", PROXY | {"NO_PROXY": "corp.test"}, None),
        ("https://corp.test", PROXY | {"NO_PROXY": ".corp.test"}, "http://proxy.test:3128"),
        ("https://api.corp.test", PROXY | {"NO_PROXY": "*.corp.test"}, None),
        ("https://mycorp.test", PROXY | {"NO_PROXY": "corp.test"}, "http://proxy.test:3128"),
        ("https://api.test:6443", PROXY | {"NO_PROXY": "api.test:6443"}, None),
        ("https://api.test", PROXY | {"NO_PROXY": "api.test:6443"}, "http://proxy.test:3128"),
        ("https://10.0.0.1", PROXY | {"NO_PROXY": "10.0.0.1:443"}, None),
        ("https://api.test", PROXY | {"NO_PROXY": "*"}, None),
    ],
)
def test_the_variables_that_everybody_knows(server: str, environ: dict[str, str], expected: str | None) -> None:
    assert expected == proxy_for(server, environ)


@asynccontextmanager
async def proxy(asked: list[str]) -> AsyncIterator[int]:
    """A proxy that connects to where it is asked to, and notes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        target = request.split()[1].decode()
        asked.append(target)
        host, _, port = target.rpartition(":")
        there, onwards = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, onwards), pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(65536):
            sink.write(piece)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
@run_in_loop
async def test_a_kubeconfig_may_name_its_proxy_and_the_servers_name(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    asked: list[str] = []
    text = control_plane.kubeconfig.read_text()
    async with proxy(asked) as port:
        more = f'{{"tls-server-name": "localhost", "proxy-url": "http://127.0.0.1:{port}", "server"'
        path = tmp_path / "config"
        path.write_text(text.replace('{"server"', more))
        transport = from_kubeconfig(path)
        assert "default" == (await KubeClient(transport).get(NAMESPACES, "default")).metadata.name
        await transport.close()
    assert [f"127.0.0.1:{control_plane.port}"] == asked
