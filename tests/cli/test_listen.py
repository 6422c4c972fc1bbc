"""Listeners: certificates that are renewed, and plain HTTP that leaves the machine."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
import trustme

from podpool.cli import listen
from podpool.cli.listen import reload_certificate, server_tls, warn_of_plain_http
from podpool.ledger.storage.database import parse_database
from podpool.runtime.http import HttpTransport, serving
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
