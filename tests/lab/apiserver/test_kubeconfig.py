"""The kubeconfig is written only over one that the server wrote itself."""

import subprocess
from pathlib import Path

import pytest

from podpool.lab.apiserver.tls import is_generated, kubeconfig
from tests.lab.apiserver.processes import PODPOOL

MINE = kubeconfig("http://127.0.0.1:7782")
OTHER = MINE.replace("podpool-apiserver", "production")
BOTH = MINE.replace("clusters:\n", "clusters:\n- name: production\n  cluster: {server: 'https://192.0.2.1'}\n")


@pytest.mark.parametrize(
    ("text", "generated"), [(MINE, True), (OTHER, False), (BOTH, False), ("", True), ("{", False), ("a note", False)]
)
def test_only_a_kubeconfig_without_other_clusters_counts_as_generated(text: str, generated: bool) -> None:
    assert generated is is_generated(text.encode())


@pytest.mark.integration
def test_another_kubeconfig_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHER)
    args = [*PODPOOL, "apiserver", "serve", "--listen", "127.0.0.1:0", "--write-kubeconfig", str(path)]
    done = subprocess.run(args, check=False, capture_output=True, text=True, timeout=60)
    assert 2 == done.returncode
    assert "was not written by this command" in done.stderr
    assert OTHER == path.read_text()
