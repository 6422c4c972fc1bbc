"""The way in is written to a file of pocket's own, and over nobody else's."""

import subprocess
from pathlib import Path

import pytest

from podpool.lab.apiserver.tls import is_own, kubeconfig
from tests.lab.apiserver.processes import PODPOOL

MINE = kubeconfig("http://127.0.0.1:7782")
OTHER = MINE.replace("pocket", "production")
BOTH = MINE.replace("clusters:\n", "clusters:\n- name: production\n  cluster: {server: 'https://192.0.2.1'}\n")


@pytest.mark.parametrize(
    ("text", "own"), [(MINE, True), (OTHER, False), (BOTH, False), ("", True), ("{", False), ("a note", False)]
)
def test_only_a_file_with_nothing_but_pocket_in_it_is_pockets_own(text: str, own: bool) -> None:
    assert own is is_own(text.encode())


def test_somebody_elses_kubeconfig_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "config"
    place.write_text(OTHER)
    words = [*PODPOOL, "pocket", "serve", "--listen", "127.0.0.1:0", "--write-kubeconfig", str(place)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert 2 == done.returncode
    assert "was not written by pocket" in done.stderr
    assert OTHER == place.read_text()
