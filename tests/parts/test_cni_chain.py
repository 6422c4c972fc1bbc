"""Plugins are called as a container runtime calls them; what they get is written down by plugins that do just that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from parts.cni import Chain, PluginFailed, Pod

if TYPE_CHECKING:
    from pathlib import Path

    from parts.namespaces import Namespaces

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("network")]

SCRIBE = """#!/bin/sh
read -r config
echo "{name} $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS|$config" >> {log}
echo '{said}'
exit {status}
"""


class Scribes:
    """A directory of plugins that write down how they were called."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "log"

    def add(self, name: str, said: dict[str, Any], *, status: int = 0) -> None:
        program = self.home / name
        program.write_text(SCRIBE.format(name=name, log=self.log, said=json.dumps(said), status=status))
        program.chmod(0o755)

    def called(self) -> list[str]:
        return [line.partition("|")[0] for line in self.log.read_text().splitlines()]

    def configs(self) -> list[dict[str, Any]]:
        return [json.loads(line.partition("|")[2]) for line in self.log.read_text().splitlines()]


@pytest.fixture
def scribes(tmp_path: Path) -> Scribes:
    return Scribes(tmp_path)


@pytest.fixture
def chain(namespaces: Namespaces, scribes: Scribes) -> Chain:
    plugins = [{"type": "one", "mtu": 1400}, {"type": "two"}]
    conflist = {"cniVersion": "1.0.0", "name": "written", "plugins": plugins}
    return Chain(namespaces=namespaces, path=[scribes.home], conflist=conflist)


POD = Pod(container="c1", netns="/run/netns/x", args={"K8S_POD_NAME": "web", "K8S_POD_NAMESPACE": "shop"})
CALL = "c1 /run/netns/x eth0 K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop"


def test_add_hands_each_result_to_the_next_plugin_and_gives_the_last(chain: Chain, scribes: Scribes) -> None:
    scribes.add("one", {"from": "one"})
    scribes.add("two", {"from": "two"})
    assert chain.add(POD) == {"from": "two"}
    assert [f"one ADD {CALL}", f"two ADD {CALL}"] == scribes.called()
    assert scribes.configs() == [
        {"cniVersion": "1.0.0", "name": "written", "type": "one", "mtu": 1400},
        {"cniVersion": "1.0.0", "name": "written", "type": "two", "prevResult": {"from": "one"}},
    ]


def test_del_goes_backward_past_an_error_with_the_result_of_add(chain: Chain, scribes: Scribes) -> None:
    scribes.add("one", {})
    scribes.add("two", {"code": 11, "msg": "try again later", "details": "busy"}, status=1)
    with pytest.raises(PluginFailed) as failed:
        chain.delete(POD, {"from": "two"})
    assert (failed.value.code, failed.value.msg, failed.value.details) == (11, "try again later", "busy")
    assert [f"two DEL {CALL}", f"one DEL {CALL}"] == scribes.called()
    assert [config["prevResult"] for config in scribes.configs()] == [{"from": "two"}, {"from": "two"}]


def test_add_stops_at_the_first_error(chain: Chain, scribes: Scribes) -> None:
    scribes.add("one", {"code": 7, "msg": "no"}, status=1)
    with pytest.raises(PluginFailed, match="one ADD: no"):
        chain.add(POD)
    assert [f"one ADD {CALL}"] == scribes.called()
