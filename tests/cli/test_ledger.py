"""The ledger as a process, and what a person types to it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import trustme

from parts.daemon import Daemon
from parts.loopback import answers, free_port
from podpool.ledger.client import LedgerClient
from podpool.runtime.http import HttpTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

PODPOOL = Path(sys.executable).parent / "podpool"


class Served:
    """A ledger that runs, with its books in a directory of its own."""

    def __init__(self, home: Path, *options: str, scheme: str = "http") -> None:
        self.home = home
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        books = ["--database", f"sqlite://{home / 'ledger.db'}", "--listen", f"127.0.0.1:{self.port}"]
        self.log = home / "ledger.log"
        ready = self.listens if scheme == "https" else lambda: answers(self.port, "/readyz")
        self.daemon = Daemon([PODPOOL, "ledger", "serve", *books, *options], log=self.log, ready=ready)
        self.daemon.start()

    def listens(self) -> bool:
        return "the ledger answers" in self.log.read_text()

    def type(self, *words: str, by: str = "ledger.db.admin-token", status: int = 0) -> str:
        """Type a command, with the token in a file; tell what it said."""
        environment = os.environ | {"PODPOOL_LEDGER": self.url, "PODPOOL_TOKEN_FILE": str(self.home / by)}
        done = subprocess.run(
            [PODPOOL, "ledger", *words],
            check=False,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert status == done.returncode, done.stdout
        return done.stdout


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.daemon.stop()


def test_it_starts_without_configuration_and_stops_when_told(served: Served) -> None:
    assert 0o600 == (served.home / "ledger.db.admin-token").stat().st_mode & 0o777
    assert "vnet.pods: 10.0.0.0/24 with 254 addresses" in served.type("subnet", "create", "vnet.pods", "10.0.0.0/24")
    assert json.loads(served.type("subnet", "list", "--output", "json"))["subnets"][0]["capacity"] == 254
    served.daemon.stop()
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert "stopping" == lines[-1]["message"]


def test_every_answer_is_told_in_every_way(served: Served) -> None:
    """As those about a cluster are: in columns, or with every field for programs."""
    served.type("subnet", "create", "vnet.pods", "10.0.0.0/24", "--gateway", "10.0.0.1")
    assert 253 == json.loads(served.type("subnet", "show", "vnet.pods", "-o", "json"))["state"]["capacity"]
    assert "10.0.0.0/24" == msgspec.yaml.decode(served.type("subnet", "list", "-o", "yaml"))["subnets"][0]["cidr"]
    short, wide = (served.type("subnet", "list", "-o", output).splitlines() for output in ("table", "wide"))
    assert "ok" == short[1].split()[-1]
    assert "10.0.0.1" == wide[1].split()[-1]
    assert wide[0].startswith(short[0])
    books = ("--database", f"sqlite://{served.home / 'ledger.db'}")
    checked = json.loads(served.type("check", *books, "-o", "json"))
    assert ([], 1) == (checked["faults"], checked["subnets"])
    for words in (("token", "list"), ("cluster", "list"), ("recovery", "status"), ("history", "pod", "default/web")):
        assert json.loads(served.type(*words, "--output", "json")).keys(), words
        assert served.type(*words, "--no-color").strip()
    assert "invalid choice: 'text'" in served.type("token", "list", "-o", "text", status=2)


def test_what_is_refused_is_told_in_words(served: Served) -> None:
    assert "cannot be read" in served.type("subnet", "list", by="none", status=2)
    (served.home / "wrong").write_text("podpool_0_0")
    assert "no good token" in served.type("subnet", "list", by="wrong", status=1)
    assert "there is no subnet vnet.none" in served.type("subnet", "show", "vnet.none", status=1)
    assert "not waited for" in served.type("recovery", "excuse", "nobody", status=1)
    assert "no two owners" in _settle(served)


def _settle(served: Served) -> str:
    served.type("subnet", "create", "vnet.pods", "10.0.0.0/24")
    return served.type("recovery", "settle", "vnet.pods", "10.0.0.9", "some-container", status=1)


def test_a_cluster_token_manages_nothing(served: Served) -> None:
    (served.home / "cluster").write_text(served.type("token", "create", "one"))
    assert "needs an admin token" in served.type("token", "list", by="cluster", status=1)
    (served.home / "second").write_text(served.type("token", "create", "two", "--admin", "yes"))
    assert "two" in served.type("token", "list", by="second")


def test_a_stream_ends_when_the_ledger_stops(served: Served) -> None:
    served.type("subnet", "create", "vnet.pods", "10.0.0.0/24")
    secret = (served.home / "ledger.db.admin-token").read_text().strip()

    async def follow() -> int:
        road = HttpTransport(served.url)
        count = 0
        async for _ in LedgerClient(road, token=secret).changes("c1"):
            count += 1
            await asyncio.to_thread(served.daemon.stop)
        await road.close()
        return count

    assert 1 == asyncio.run(follow())


def test_it_speaks_tls_with_whom_trusts_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key, trusted = (tmp_path / name for name in ("chain.pem", "key.pem", "ca.pem"))
    certificate.private_key_pem.write_to_path(key)
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(chain, append=True)
    authority.cert_pem.write_to_path(trusted)
    served = Served(tmp_path, "--tls-cert", str(chain), "--tls-key", str(key), scheme="https")
    try:
        assert "SUBNET" in served.type("subnet", "list", "--ca-file", str(trusted))
        assert "cannot be reached" in served.type("subnet", "list", status=3)
    finally:
        served.daemon.stop()
