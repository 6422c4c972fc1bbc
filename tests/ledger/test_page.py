"""The page for the ledger's users is true: its commands are run as they are written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from parts.namespaces import Namespaces

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ledger.md"
BEGIN = "trap 'kill $(jobs -p)' EXIT; set -eux -o pipefail; mount -t tmpfs tmpfs /var/lib\n"


@pytest.mark.real
def test_the_commands_of_the_page_work(namespaces: Namespaces, tmp_path: Path) -> None:
    """In a network and a /var/lib of their own: usual ports and usual places."""
    commands = BEGIN + "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    told = subprocess.run(
        namespaces.inside(["bash", "-c", commands]),
        check=False,
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert 0 == told.returncode, told.stdout
    assert "vnet/pods: 10.50.0.0/25, 10.60.0.0/26 with 179 addresses" in told.stdout
    assert '"capacity":179,"reserved":0' in told.stdout
    assert re.search("10.50.0.11 .* one .* now .*default/web$", told.stdout, re.MULTILINE)
    assert '"namespace":"default","name":"web"' in told.stdout
    assert "1 containers closed, 4 addresses rest, 1 tokens revoked" in told.stdout
