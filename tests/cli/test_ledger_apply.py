"""`podpool ledger apply` and `export`: a file and a ledger agree after one run, and errors name field and line."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import msgspec
import pytest

from podpool.cli.ledger_file.document import parse_ledger_file
from podpool.cli.ledger_file.located_yaml import MAX_BYTES
from podpool.core.errors import InvalidInput
from tests.ledger.ledger_server import served_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Invoke

FILE = """
subnets:
- name: vnet.pods
  cidr: 10.50.0.0/24
  gateway: 10.50.0.1
  exclude: [10.50.0.2-10.50.0.9, 10.50.0.16/28, 10.60.0.4]
  additional_cidrs: [10.60.0.0/26]
  settings: {batch: 8, cooldown: 1m, buffer: 0.25}
- name: vnet.six
  cidr: fd00:50::/64
  draining: true
tokens:
- name: production
  allow: [vnet.pods]
  secret_file: production-token
"""


class LedgerUser:
    """A ledger, and files for it."""

    def __init__(self, invoke: Invoke, home: Path, url: str) -> None:
        self.invoke = invoke
        self.home = home
        self.url = url

    def apply(self, text: str, *options: str, code: int = 0) -> tuple[list[tuple[str, str, bool]], str]:
        """Apply a file; return the steps, and standard error."""
        path = self.home / "ledger.yaml"
        path.write_text(text)
        done = self.run("apply", "-f", str(path), "-o", "json", *options)
        assert code == done[0], done
        steps = json.loads(done[1])["steps"] if done[1] else []
        return [(each["action"], each["name"], each["done"]) for each in steps], done[2]

    def run(self, *words: str) -> tuple[int, str, str]:
        return self.invoke("ledger", *words, "--ledger", self.url, "--ledger-token-file", str(self.home / "admin"))


@pytest.fixture
def ledger(invoke: Invoke, tmp_path: Path) -> Iterator[LedgerUser]:
    with served_ledger() as served:
        (tmp_path / "admin").write_text(served.admin)
        yield LedgerUser(invoke, tmp_path, served.url)


OTHER_TOKEN = "- name: cluster\n"  # noqa: S105  a name
"""The token that the ledger of this test begins with."""


@pytest.mark.integration
class TestApply:
    def test_a_second_run_changes_nothing(self, ledger: LedgerUser) -> None:
        steps, _ = ledger.apply(FILE)
        assert [
            ("create", "vnet.pods", True),
            ("grow", "vnet.pods", True),
            ("create", "vnet.six", True),
            ("drain", "vnet.six", True),
            ("create token", "production", True),
        ] == steps
        assert [] == ledger.apply(FILE)[0]
        secret = ledger.home / "production-token"
        assert secret.read_text().startswith("podpool_")
        assert 0o600 == stat.S_IMODE(secret.stat().st_mode)

    def test_export_writes_the_same_file(self, ledger: LedgerUser) -> None:
        ledger.apply(FILE)
        code, exported, _ = ledger.run("export")
        assert 0 == code
        assert [] == ledger.apply(exported)[0]
        assert [] == ledger.apply(ledger.run("export", "-o", "json")[1])[0]
        pods = msgspec.yaml.decode(exported)["subnets"][0]
        assert ("10.50.0.0/24", ["10.60.0.0/26"]) == (pods["cidr"], pods["additional_cidrs"])
        assert {"batch": "8", "buffer": "0.25"} == {key: pods["settings"][key] for key in ("batch", "buffer")}

    def test_a_dry_run_changes_nothing(self, ledger: LedgerUser) -> None:
        steps, _ = ledger.apply(FILE, "--dry-run")
        assert {False} == {done for *_, done in steps}
        assert '"subnets":[]' in ledger.run("export", "-o", "json")[1].replace(" ", "")
        assert not (ledger.home / "production-token").exists()

    def test_a_subnet_grows_is_reopened_and_never_shrinks(self, ledger: LedgerUser) -> None:
        ledger.apply(FILE)
        larger = FILE.replace("10.50.0.0/24", "10.50.0.0/23").replace("draining: true", "draining: false")
        assert [("grow", "vnet.pods", True), ("reopen", "vnet.six", True)] == ledger.apply(larger)[0]
        assert [] == ledger.apply(larger)[0]
        _, error = ledger.apply(FILE, code=2)
        assert "line 4, subnets[0].cidr '10.50.0.0/24': the ledger has 10.50.0.0/23 in vnet.pods" in error

    @pytest.mark.parametrize(
        ("before", "after", "error"),
        [
            ("gateway: 10.50.0.1\n", "gateway: 10.50.0.10\n", "line 5, subnets[0].gateway '10.50.0.10': gateway of"),
            ("batch: 8", "batch: 4", "line 8, subnets[0].settings '...': batch is 8 in the ledger and 4 in the file"),
            ("10.50.0.16/28", "10.50.0.32/28", "line 6, subnets[0].exclude '...': exclude of vnet.pods is 10.50.0.2-"),
            (
                "  gateway: 10.50.0.1\n",
                "",
                "line 3, subnets[0].name 'vnet.pods': gateway of vnet.pods is 10.50.0.1 in the ledger",
            ),
        ],
        ids=["gateway", "settings", "exclude", "no gateway"],
    )
    def test_what_cannot_be_changed_is_an_error(self, ledger: LedgerUser, before: str, after: str, error: str) -> None:
        ledger.apply(FILE)
        assert error in ledger.apply(FILE.replace(before, after), code=2)[1]

    def test_nothing_is_removed_without_prune(self, ledger: LedgerUser) -> None:
        ledger.apply(FILE)
        only = "subnets: []\ntokens:\n" + OTHER_TOKEN
        assert [] == ledger.apply(only)[0]
        code, out, _ = ledger.run("apply", "-f", str(ledger.home / "ledger.yaml"))
        assert 0 == code
        assert "kept without --prune: subnet vnet.pods, subnet vnet.six, token production" in out
        steps, _ = ledger.apply(only, "--prune")
        assert [
            ("drain", "vnet.pods", True),
            ("delete", "vnet.pods", True),
            ("delete", "vnet.six", True),
            ("revoke token", "production", True),
        ] == steps
        assert [] == ledger.apply(only, "--prune")[0]

    def test_lists_that_are_missing_are_not_compared(self, ledger: LedgerUser) -> None:
        ledger.apply(FILE)
        assert [] == ledger.apply("{}", "--prune")[0]

    def test_the_scope_of_a_token_is_changed_by_rotation(self, ledger: LedgerUser) -> None:
        ledger.apply(FILE.replace("  allow: [vnet.pods]\n", "  allow: [vnet.pods]\n  cluster: c1\n"))
        before = (ledger.home / "production-token").read_text()
        wider = FILE.replace("allow: [vnet.pods]", "allow: [vnet]")
        assert [("rotate token", "production", True)] == ledger.apply(wider)[0]
        assert before != (ledger.home / "production-token").read_text()
        assert [] == ledger.apply(wider)[0]
        _, error = ledger.apply(FILE.replace("  allow: [vnet.pods]\n", ""), code=2)
        assert "token production may use vnet: list them with allow" in error

    def test_limits_of_a_token_are_changed_by_rotation_and_exported(self, ledger: LedgerUser) -> None:
        limits = "  max_addresses: 500\n  priority: 2\n"
        limited = FILE.replace("  allow: [vnet.pods]\n", f"  allow: [vnet.pods]\n  cluster: c1\n{limits}")
        ledger.apply(limited)
        assert [] == ledger.apply(ledger.run("export")[1])[0]
        assert [("rotate token", "production", True)] == ledger.apply(limited.replace("500", "600"))[0]
        assert [] == ledger.apply(limited.replace("500", "600"))[0]
        assert [("rotate token", "production", True)] == ledger.apply(FILE)[0]
        assert [] == ledger.apply(FILE)[0]

    def test_a_secret_without_a_place_is_not_created(self, ledger: LedgerUser) -> None:
        for line in ("", "  secret_file: none/token\n"):
            _, error = ledger.apply(FILE.replace("  secret_file: production-token\n", line), code=2)
            assert "secret_file" in error
        assert '"subnets":[]' in ledger.run("export", "-o", "json")[1].replace(" ", "")

    def test_a_refusal_shows_what_was_done(self, ledger: LedgerUser) -> None:
        overlapping = "subnets:\n- {name: vnet.a, cidr: 10.0.0.0/24}\n- {name: vnet.b, cidr: 10.0.0.0/25}\n"
        steps, error = ledger.apply(overlapping, code=1)
        assert [("create", "vnet.a", True), ("create", "vnet.b", False)] == steps
        assert "overlaps" in error

    def test_an_unreachable_ledger(self, ledger: LedgerUser) -> None:
        ledger.url = "http://127.0.0.1:1"
        assert "cannot be reached" in ledger.apply(FILE, code=3)[1]


DEEP = "subnets: " + "[" * 1_000
LAUGHS = "a: &a [x]\nsubnets: [*a, *a]\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("subnets:\n- name: vnet.pods\n", "line 2, subnets[0] '...': lacks the field 'cidr'"),
        ("subnets:\n- {name: pods, cidr: 10.0.0.0/24}\n", "line 2, subnets[0].name 'pods': not a subnet"),
        ("subnets:\n- name: a.b\n  cidr: 10.0.0.0\n", "line 3, subnets[0].cidr '10.0.0.0': not in CIDR notation"),
        ("subnets:\n- name: a.b\n  cidr: x\n  cdir: y\n", "line 4, subnets[0].cdir 'y': unknown field 'cdir'; use one"),
        ("subnets:\n- {name: a.b, cidr: 10.0.0.0/24, gateway: x}\n", "subnets[0].gateway 'x': not an IPv4 or IPv6"),
        ("subnets:\n- {name: a.b, cidr: 10.0.0.0/24, exclude: [x]}\n", "subnets[0].exclude[0] 'x': 'x' is not an IPv4"),
        ("subnets:\n- {name: a.b, cidr: 10.0.0.0/24, settings: {batch: 0}}\n", "batch must be from 1 to 256"),
        ("subnets:\n- {name: a.b, cidr: 10.0.0.0/24, settings: {fence: 1m}}\n", "unknown field 'fence'; use one of"),
        ("subnets:\n- {name: a.b, cidr: 10.0.0.0/24, draining: 1}\n", "subnets[0].draining '1': write true or false"),
        ("subnets:\n- {name: a.b, cidr: 10.0.0.0/24}\n- {name: a.b, cidr: 10.1.0.0/24}\n", "line 3, subnets[1]"),
        ("subnets: 1\n", "line 1, subnets '1': write a list"),
        ("- 1\n", "line 1, file '...': write a mapping with subnets, tokens"),
        ("subnets: []\nsubnets: []\n", "line 2, subnets 'subnets': is given twice"),
        ("tokens:\n- {}\n", "line 2, tokens[0] '...': lacks the field 'name'"),
        ("tokens: [\n", "line 2"),
        (LAUGHS, "line 1 'a': anchors and aliases are not allowed"),
        ("subnets: !!python/object:os.system x\n", "tags are not allowed"),
        (DEEP, "is not YAML"),
        ("a: \x00", "is not YAML"),
    ],
    ids=range(19),
)
def test_errors_name_field_and_line(text: str, error: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_ledger_file(text.encode(), file="ledger.yaml")
    assert str(refused.value).startswith("ledger.yaml")
    assert error in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (MAX_BYTES + 1)], ids=["binary", "huge"])
def test_bytes_that_are_no_file(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="ledger.yaml"):
        parse_ledger_file(content, file="ledger.yaml")


def test_a_file_that_is_missing(invoke: Invoke) -> None:
    code, _, stderr = invoke("ledger", "apply", "-f", "/none.yaml", "--ledger-token-file", "")
    assert (2, "podpool: --file '/none.yaml': cannot be read: No such file or directory\n") == (code, stderr)
