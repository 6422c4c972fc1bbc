"""An agent that cannot let the kernel answer for its Pods does not start, and names the flag and what is missing."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from parts.debian import command
from tests.networks.site import PODPOOL

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("networks")]

CAPABILITIES = "Operation not permitted: the agent needs the capabilities NET_ADMIN and NET_RAW (--proxy-uplink)"


def refusal(namespaces: Namespaces, home: Path, *options: str, without: str = "") -> str:
    """Return the error of an agent in a network namespace with `lo` and an uplink."""
    namespaces.run("sh", "-c", "ip link show eth0 >&2 || ip link add eth0 type veth peer name other")
    (home / "kubeconfig").write_text("")
    drop = [command("setpriv"), f"--bounding-set=-{without}", "--"] if without else []
    agent = ["agent", "run", "--kubeconfig", str(home / "kubeconfig"), "--state", str(home), "--conf-dir", ""]
    done = subprocess.run(
        namespaces.inside([*drop, PODPOOL, *agent, *options]), check=False, capture_output=True, text=True
    )
    assert 2 == done.returncode, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--proxy-uplink", "eth9"), "--proxy-uplink 'eth9': there is no interface eth9 in the network namespace"),
        (("--proxy-uplink", "lo"), "--proxy-uplink 'lo': is not an Ethernet interface"),
        (("--proxy-uplink", "eth0", "--sysctl-dir", "/nowhere"), "cannot set /nowhere/ipv4/neigh/eth0/proxy_delay"),
    ],
)
def test_an_interface_that_cannot_be_the_uplink(
    namespaces: Namespaces, tmp_path: Path, options: tuple[str, ...], error: str
) -> None:
    assert error in refusal(namespaces, tmp_path, *options)


@pytest.mark.parametrize("without", ["net_admin", "net_raw"])
def test_a_missing_capability(namespaces: Namespaces, tmp_path: Path, without: str) -> None:
    assert CAPABILITIES in refusal(namespaces, tmp_path, "--proxy-uplink", "eth0", without=without)


def test_uninstall_removes_entries_of_podpool_only(namespaces: Namespaces, tmp_path: Path) -> None:
    namespaces.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
    for address, marked in (("10.0.0.8", ["protocol", "80"]), ("10.0.0.9", [])):
        namespaces.run("ip", "neigh", "add", "proxy", address, "dev", "eth0", *marked)
    home = str(tmp_path)
    printed = namespaces.run(PODPOOL, "cni", "uninstall", "--bin-dir", home, "--conf-dir", home)
    assert "1 proxy entries\n" == printed
    assert ["10.0.0.9"] == [line.split()[0] for line in namespaces.run("ip", "neigh", "show", "proxy").splitlines()]
