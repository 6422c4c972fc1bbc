"""The ledger as a process, and the commands that manage it."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import trustme

from parts.daemon import Daemon
from parts.loopback import answers, free_port
from parts.polling import until
from podpool.cli.main import main
from podpool.ledger.client import LedgerClient
from podpool.runtime.http_client import HttpTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

PODPOOL = Path(sys.executable).parent / "podpool"


class Served:
    """A running ledger with its database in a directory of its own."""

    def __init__(self, home: Path, *options: str, scheme: str = "http") -> None:
        self.home = home
        self.port, self.health = free_port(), free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        options_ = ["--database", f"sqlite://{home / 'ledger.db'}", "--listen", f"127.0.0.1:{self.port}"]
        options_ += ["--health-listen", f"127.0.0.1:{self.health}"]
        self.log = home / "ledger.log"
        self.daemon = Daemon([PODPOOL, "ledger", "serve", *options_, *options], log=self.log, ready=self.is_ready)
        self.daemon.start()

    def is_ready(self) -> bool:
        return answers(self.health, "/readyz") and "ledger started" in self.log.read_text()

    def run(self, *words: str, by: str = "ledger.db.admin-token", code: int = 0) -> str:
        """Run a command with the token of a file; return what it printed."""
        connection = ["--ledger", self.url, "--ledger-token-file", str(self.home / by)]
        if words[0] == "check":
            connection = []
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed), pytest.raises(SystemExit) as stopped:
            main(["ledger", *words, *connection])
        assert code == stopped.value.code, printed.getvalue()
        return printed.getvalue()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.daemon.stop()


def test_it_starts_without_configuration_and_stops_on_a_signal(served: Served) -> None:
    assert 0o600 == (served.home / "ledger.db.admin-token").stat().st_mode & 0o777
    assert "vnet.pods: 10.0.0.0/24 with 254 addresses" in served.run("subnet", "create", "vnet.pods", "10.0.0.0/24")
    assert json.loads(served.run("subnet", "list", "--output", "json"))["subnets"][0]["capacity"] == 254
    served.daemon.stop()
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert "signal received, stopping" == lines[-1]["event"]


def test_every_result_has_every_format(served: Served) -> None:
    """Tables for people, every field for programs."""
    served.run("subnet", "create", "vnet.pods", "10.0.0.0/24", "--gateway", "10.0.0.1")
    assert 253 == json.loads(served.run("subnet", "show", "vnet.pods", "-o", "json"))["state"]["capacity"]
    assert "10.0.0.0/24" == msgspec.yaml.decode(served.run("subnet", "list", "-o", "yaml"))["subnets"][0]["cidr"]
    short, wide = (served.run("subnet", "list", "-o", output).splitlines() for output in ("table", "wide"))
    assert "ok" == short[1].split()[-1]
    assert "10.0.0.1" == wide[1].split()[-1]
    assert wide[0].startswith(short[0])
    database = ("--database", f"sqlite://{served.home / 'ledger.db'}")
    checked = json.loads(served.run("check", *database, "-o", "json"))
    assert ([], 1) == (checked["faults"], checked["subnets"])
    for words in (("token", "list"), ("cluster", "list"), ("recovery", "status"), ("history", "pod", "default/web")):
        assert json.loads(served.run(*words, "--output", "json")).keys(), words
        assert served.run(*words, "--no-color").strip()
    assert "--output 'text': use one of" in served.run("token", "list", "-o", "text", code=2)


def test_a_refusal_is_one_line(served: Served) -> None:
    assert "cannot be read" in served.run("subnet", "list", by="none", code=2)
    (served.home / "wrong").write_text("podpool_0_0")
    assert "no valid token" in served.run("subnet", "list", by="wrong", code=1)
    assert "there is no subnet vnet.none" in served.run("subnet", "show", "vnet.none", code=1)
    assert "is pending" in served.run("recovery", "excuse", "unknown", code=1)
    assert "no ownership conflict" in _resolve(served)


def _resolve(served: Served) -> str:
    served.run("subnet", "create", "vnet.pods", "10.0.0.0/24")
    return served.run("recovery", "resolve", "vnet.pods", "10.0.0.9", "some-nc", code=1)


def test_a_cluster_token_is_no_admin_token(served: Served) -> None:
    (served.home / "cluster").write_text(served.run("token", "create", "one"))
    assert "needs an admin token" in served.run("token", "list", by="cluster", code=1)
    (served.home / "second").write_text(served.run("token", "create", "two", "--admin"))
    assert "two" in served.run("token", "list", by="second")


def test_a_cluster_token_from_a_file_is_valid_until_it_is_revoked(tmp_path: Path) -> None:
    """So that cluster and ledger are installed together, and nobody copies a token between them."""
    token = tmp_path / "cluster"
    token.write_text(f"podpool_{'5' * 12}_{'7' * 64}\n")
    served = Served(tmp_path, "--cluster-token-file", str(token))
    try:
        assert "needs an admin token" in served.run("token", "list", by="cluster", code=1)
        served.run("token", "revoke", f"cluster-{'5' * 12}")
        served.daemon.stop()
        served.daemon.start()
        assert "the token of --cluster-token-file was revoked" in served.log.read_text()
        until(lambda: "no valid token" in served.run("token", "list", by="cluster", code=1), "it is refused")
    finally:
        served.daemon.stop()


def test_a_stream_ends_when_the_ledger_stops(served: Served) -> None:
    served.run("subnet", "create", "vnet.pods", "10.0.0.0/24")
    secret = (served.home / "ledger.db.admin-token").read_text().strip()

    async def follow() -> int:
        transport = HttpTransport(served.url)
        count = 0
        async for _ in LedgerClient(transport, token=secret).changes("c1"):
            count += 1
            await asyncio.to_thread(served.daemon.stop)
        await transport.close()
        return count

    assert 1 == asyncio.run(follow())


def test_it_serves_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key, trusted = (tmp_path / name for name in ("chain.pem", "key.pem", "ca.pem"))
    certificate.private_key_pem.write_to_path(key)
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(chain, append=True)
    authority.cert_pem.write_to_path(trusted)
    served = Served(tmp_path, "--tls-cert", str(chain), "--tls-key", str(key), scheme="https")
    try:
        assert "SUBNET" in served.run("subnet", "list", "--ledger-ca-file", str(trusted))
        assert "cannot be reached" in served.run("subnet", "list", code=3)
        other = ("--ledger-ca-file", str(trusted), "--ledger-server-name")
        assert "SUBNET" in served.run("subnet", "list", *other, "127.0.0.1")
        assert "podpool-ledger" in served.run("subnet", "list", *other, "podpool-ledger", code=3)
    finally:
        served.daemon.stop()
