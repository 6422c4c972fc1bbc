"""Listeners: certificates that are renewed, and plain HTTP that leaves the machine."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
import trustme

from podpool.cli import listen
from podpool.cli.connect import ledger_client
from podpool.cli.listen import reload_certificate, server_tls, warn_of_plain_http
from podpool.core.errors import InvalidInput
from podpool.ledger.client import Timeouts
from podpool.ledger.storage.database import parse_database
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request, Response, Unreachable


def write(authority: trustme.CA, chain: Path, key: Path) -> None:
    """Write a new certificate and its key."""
    made = authority.issue_cert("127.0.0.1")
    key.write_bytes(made.private_key_pem.bytes())
    chain.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))


def test_renewed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "RELOAD_INTERVAL", 0.01)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    old, new = trustme.CA(), trustme.CA()
    write(old, chain, key)
    context = server_tls(str(chain), str(key))
    assert context

    async def answer(_: Request) -> Response:
        return Response(200)

    async def trusted(authority: trustme.CA, port: int) -> bool:
        ours = ssl.create_default_context()
        authority.configure_trust(ours)
        transport = HttpTransport(f"https://127.0.0.1:{port}", tls=ours)
        try:
            await (await transport.send(Request(method="GET", path="/"))).read()
        except Unreachable:
            return False
        else:
            return True
        finally:
            await transport.close()

    async def main() -> None:
        reloading = asyncio.ensure_future(reload_certificate(context, str(chain), str(key)))
        async with asyncio.timeout(30), serving(answer, host="127.0.0.1", port=0, tls=context) as port:
            assert await trusted(old, port)
            key.write_text("half a key")
            assert await trusted(old, port)
            write(new, chain, key)
            while not await trusted(new, port):
                pass
        reloading.cancel()
        await asyncio.wait([reloading])

    asyncio.run(main())


def test_client_certificate_is_required_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the client CA; a token alone does not suffice."""
    monkeypatch.setattr(listen, "RELOAD_INTERVAL", 0.01)
    names = ("chain.pem", "key.pem", "client.pem", "foreign.pem", "ca.pem", "clients.pem")
    chain, key, client, foreign, ca, clients = [tmp_path / name for name in names]
    authority, own = trustme.CA(), trustme.CA()
    write(authority, chain, key)
    authority.cert_pem.write_to_path(ca)
    own.cert_pem.write_to_path(clients)
    own.issue_cert("c1").private_key_and_cert_chain_pem.write_to_path(client)
    trustme.CA().issue_cert("c1").private_key_and_cert_chain_pem.write_to_path(foreign)
    context = server_tls(str(chain), str(key), client_ca=str(clients))

    async def answer(_: Request) -> Response:
        return Response(200, b'{"revision": 1}')

    async def accepted(port: int, certificate: str) -> bool:
        connecting = ledger_client(
            f"https://127.0.0.1:{port}",
            token_file="",
            ca_file=str(ca),
            server_name="",
            client_cert=certificate,
            timeouts=Timeouts(attempts=1),
        )
        async with connecting as ledger:
            assert ledger
            try:
                await ledger.recovery()
            except Unreachable:
                return False
            own.issue_cert("c1").private_key_and_cert_chain_pem.write_to_path(client)
            return 1 == (await ledger.recovery()).revision

    async def main() -> None:
        async with asyncio.timeout(30), serving(answer, host="127.0.0.1", port=0, tls=context) as port:
            assert [True, False, False] == [await accepted(port, each) for each in (str(client), str(foreign), "")]

    asyncio.run(main())


def test_invalid_certificates_of_clients_are_refused(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    write(trustme.CA(), chain, key)
    with pytest.raises(InvalidInput, match="--tls-client-ca .* needs --tls-cert"):
        server_tls("", "", client_ca="ca.pem")
    with pytest.raises(InvalidInput, match="--tls-client-ca .* cannot be loaded"):
        server_tls(str(chain), str(key), client_ca=str(tmp_path / "missing"))

    async def connect() -> None:
        fields = {"token_file": "", "ca_file": "", "server_name": ""}
        missing = str(tmp_path / "missing")
        async with ledger_client("https://x", **fields, client_cert=missing, timeouts=Timeouts()):
            pass

    with pytest.raises(InvalidInput, match="--ledger-client-cert .* cannot be loaded"):
        asyncio.run(connect())


@pytest.mark.parametrize(
    ("host", "warned"), [("0.0.0.0", True), ("::", True), ("10.0.0.1", True), ("127.0.0.1", False), ("::1", False)]
)
def test_plain_http_that_leaves_the_machine_is_reported(
    host: str, caplog: pytest.LogCaptureFixture, *, warned: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_plain_http(host, None)
        warn_of_plain_http(host, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    assert warned == any("plain HTTP" in record.getMessage() for record in caplog.records)
    assert len(caplog.records) == warned


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://podpool:secret@db/name",
        "postgresql://podpool@db/name?password=secret",
        "postgresql:///name?host=db&user=podpool&password=secret&sslpassword=secret&passfile=secret",
    ],
)
def test_password_of_a_database_url_is_not_shown(url: str) -> None:
    shown = str(parse_database(url))
    assert "secret" not in shown
    assert "db" in shown


def test_credentials_of_a_server_url_are_not_in_its_errors() -> None:
    async def main() -> None:
        transport = HttpTransport("http://user:secret@127.0.0.1:1")
        try:
            await transport.send(Request(method="GET", path="/"))
        finally:
            await transport.close()

    with pytest.raises(Unreachable) as raised:
        asyncio.run(main())
    assert "secret" not in str(raised.value)
