"""Where the API server is, and who we are there."""

import base64
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from parts.control_plane import ControlPlane
from podpool.api.builtin import NAMESPACES
from podpool.core.errors import InvalidInput
from podpool.kube.client import KubeClient
from podpool.kube.client_config import connect, default_namespace, from_kubeconfig, in_cluster, token_file_headers
from podpool.kube.errors import ApiForbidden
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request, Response
from tests.kube.event_loops import run_in_loop


def kubeconfig(path: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


class TestKubeconfig:
    def test_yaml_is_read_as_well_as_json(self, tmp_path: Path) -> None:
        path = tmp_path / "config"
        path.write_text(
            """
            apiVersion: v1
            current-context: here
            contexts: [{name: here, context: {cluster: c, user: u}}]
            clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
            users: [{name: u, user: {token: t}}]
            """
        )
        assert "http://127.0.0.1:1" == str(from_kubeconfig(path).base).rstrip("/")

    @pytest.mark.parametrize(("said", "meant"), [({"namespace": "shop"}, "shop"), ({}, "default")])
    def test_names_are_looked_for_in_the_contexts_namespace(
        self, tmp_path: Path, said: dict[str, str], meant: str
    ) -> None:
        path = kubeconfig(tmp_path / "config", cluster={"server": "http://x"}, user={})
        config = json.loads(path.read_text())
        config["contexts"][0]["context"] |= said
        path.write_text(json.dumps(config))
        assert meant == default_namespace(path) == default_namespace(environ={"KUBECONFIG": str(path)})

    def test_a_missing_context_or_file_is_named(self, tmp_path: Path) -> None:
        path = kubeconfig(tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user={})
        with pytest.raises(InvalidInput, match="context 'other': .* defines x"):
            from_kubeconfig(path, context="other")
        with pytest.raises(InvalidInput, match="No such file"):
            from_kubeconfig(tmp_path / "none")
        path.write_text("[]")
        with pytest.raises(InvalidInput, match="kubeconfig"):
            from_kubeconfig(path)

    def test_the_first_of_several_files_that_has_a_value_counts(self, tmp_path: Path) -> None:
        one, two, none = tmp_path / "one", tmp_path / "two", tmp_path / "none"
        one.write_text(
            """
            contexts: [{name: mine, context: {cluster: both, user: u}}, {name: x, context: {cluster: far, user: u}}]
            clusters: [{name: both, cluster: {server: "http://127.0.0.1:1"}}]
            users: null
            """
        )
        two.write_text(
            """
            current-context: mine
            clusters:
            - {name: both, cluster: {server: "http://127.0.0.1:2"}}
            - {name: far, cluster: {server: "http://127.0.0.1:3"}}
            users: [{name: u}]
            """
        )
        transport = connect({"KUBECONFIG": f"{none}:{one}:{two}"})
        assert "http://127.0.0.1:1" == str(transport.base).rstrip("/")
        assert "http://127.0.0.1:3" == str(from_kubeconfig(one, two, context="x").base).rstrip("/")

    @run_in_loop
    async def test_certificates_and_keys_may_stand_in_the_file(self, tmp_path: Path) -> None:
        async with strict_server(tmp_path) as (cluster, certificate, key):
            authority = inline((tmp_path / "ca.crt").read_bytes())
            inside = {"server": cluster["server"], "certificate-authority-data": authority}
            user = {"client-certificate-data": inline(certificate), "client-key-data": inline(key)}
            assert b"hello" == await greeted(kubeconfig(tmp_path / "config", cluster=inside, user=user))

    @run_in_loop
    async def test_certificates_and_keys_may_stand_beside_the_file(self, tmp_path: Path) -> None:
        async with strict_server(tmp_path) as (cluster, certificate, key):
            (tmp_path / "mine.crt").write_bytes(certificate)
            (tmp_path / "mine.key").write_bytes(key)
            user = {"client-certificate": "mine.crt", "client-key": "mine.key"}
            assert b"hello" == await greeted(kubeconfig(tmp_path / "config", cluster=cluster, user=user))

    @run_in_loop
    async def test_certificates_and_keys_may_come_from_a_plugin(self, tmp_path: Path) -> None:
        async with strict_server(tmp_path) as (cluster, certificate, key):
            status = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
            version = "client.authentication.k8s.io/v1"
            (tmp_path / "printed").write_text(json.dumps({"apiVersion": version, "status": status}))
            plugin = {"apiVersion": version, "command": "cat", "args": [str(tmp_path / "printed")]}
            assert b"hello" == await greeted(kubeconfig(tmp_path / "config", cluster=cluster, user={"exec": plugin}))


@asynccontextmanager
async def strict_server(home: Path) -> AsyncIterator[tuple[dict[str, Any], bytes, bytes]]:
    """A server that wants a client's certificate: how to go there, a certificate and its key."""
    authority = trustme.CA()
    client = authority.issue_cert("client@podpool.test")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(home / "ca.crt")

    async def hello(_: Request) -> Response:
        return Response(200, b"hello")

    async with serving(hello, host="127.0.0.1", port=0, tls=tls) as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt"}
        yield cluster, client.cert_chain_pems[0].bytes(), client.private_key_pem.bytes()


async def greeted(path: Path) -> bytes:
    transport = from_kubeconfig(path)
    try:
        return await (await transport.send(Request(method="GET", path="/"))).read()
    finally:
        await transport.close()


def inline(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def test_a_token_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    headers = token_file_headers(token)
    assert {"authorization": "Bearer first"} == headers()
    token.write_text("second\n")
    os.utime(token, ns=(1, 1))
    assert {"authorization": "Bearer second"} == headers()


@pytest.mark.real
@pytest.mark.xdist_group("control-plane")
class TestRealServer:
    @run_in_loop
    async def test_a_pod_finds_its_way_and_its_account(self, control_plane: ControlPlane, tmp_path: Path) -> None:
        (tmp_path / "ca.crt").write_bytes(control_plane.ca.read_bytes())
        (tmp_path / "token").write_text(control_plane.accounts.token("in-cluster"))
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(control_plane.port)}
        transport = in_cluster(environ, account=tmp_path)
        with pytest.raises(ApiForbidden, match="list namespaces: .*serviceaccount:default:in-cluster"):
            await KubeClient(transport).list(NAMESPACES)
        await transport.close()

    @run_in_loop
    async def test_the_environment_names_the_kubeconfig(self, control_plane: ControlPlane) -> None:
        transport = connect({"KUBECONFIG": str(control_plane.kubeconfig)})
        assert "default" == (await KubeClient(transport).get(NAMESPACES, "default")).metadata.name
        await transport.close()
