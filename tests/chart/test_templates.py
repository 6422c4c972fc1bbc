"""Objects of the chart: every profile is valid, and every container is as restricted as it can be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from podpool.cli.parser import find_command, parse
from podpool.cli.spec.model import Command
from podpool.cni.profiles import interface_plugin
from tests.chart.rendering import CHART_DIR, PROFILES, REQUIRED, containers, helm, merged, named, render, workloads

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("chart")]

EVERYTHING: dict[str, Any] = merged(
    REQUIRED,
    {
        "metrics": {"enabled": True, "podMonitor": True, "rules": True, "board": True},
        "dashboard": {"enabled": True},
        "slices": {"sharedRanges": True, "flatFile": "{}"},
        "agent": {"criSocket": "/run/containerd/containerd.sock"},
        "settings": {"batch": 8, "cooldown": "5s"},
        "kubernetes": {"host": "10.0.0.1", "port": 6443},
    },
)
POSTGRES = {"mode": "postgresql", "replicas": 2, "postgresql": {"secret": "database"}}


@pytest.fixture(params=[*PROFILES, "everything", "postgresql"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> list[Any]:
    """The chart in each profile, and with everything that is off by default."""
    if request.param == "everything":
        return render(tmp_path, EVERYTHING)
    if request.param == "postgresql":
        return render(tmp_path, merged(EVERYTHING, {"ledger": POSTGRES}))
    return render(tmp_path, PROFILES[request.param], profile=request.param)


@pytest.mark.parametrize("profile", PROFILES)
def test_helm_has_no_complaint(profile: str, tmp_path: Path) -> None:
    values = tmp_path / "values.json"
    values.write_text(json.dumps(PROFILES[profile]))
    files = [CHART_DIR / f"profiles/{profile}.yaml", values]
    argv = [each for file in files for each in ("--values", file)]
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART_DIR, "-n", "kube-system", *argv, home=tmp_path)


def test_every_command_line_is_one_of_podpool(objects: list[Any]) -> None:
    """Its own parser reads it: no flag is unknown, and no value outside the choices of its option."""
    for container in containers(objects):
        command, words = find_command(container["args"])
        assert isinstance(command, Command), container["args"]
        variables = {each["name"] for each in container.get("env", ())}
        assert parse(command, words, environment={})
        for name in variables - {"NODE_NAME", "POD_IP", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}:
            assert name.startswith("PODPOOL_"), name
        used = {each.partition(")")[0] for word in words for each in word.split("$(")[1:]}
        assert used <= variables | {"PODPOOL_LEDGER_SERVICE_HOST"}


def test_containers_have_no_rights_that_they_do_not_need(objects: list[Any]) -> None:
    for container in containers(objects):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert {"drop": ["ALL"]} == context["capabilities"]
        assert {"type": "RuntimeDefault"} == context["seccompProfile"]
        assert context["runAsNonRoot"] is (context["runAsUser"] != 0)
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]


def test_only_agents_are_root_and_see_their_node(objects: list[Any]) -> None:
    for each in workloads(objects):
        spec = each["spec"]["template"]["spec"]
        roots = [one for one in [*spec.get("initContainers", ()), *spec["containers"]] if one["name"] != "cleanup"]
        paths = [volume["hostPath"]["path"] for volume in spec.get("volumes", ()) if "hostPath" in volume]
        if each["kind"] == "DaemonSet":
            assert set(paths) <= {
                *("/var/lib/podpool", "/run/podpool", "/run/netns", "/opt/cni/bin", "/etc/cni/net.d"),
                "/run/containerd/containerd.sock",
            }
        else:
            assert not paths
            assert all(one["securityContext"]["runAsUser"] for one in roots)


@pytest.mark.parametrize("uplink", ["", "eth0"])
def test_net_admin_is_for_proxy_arp_only(uplink: str, tmp_path: Path) -> None:
    network = {"profile": "routed", "proxyUplink": uplink}
    objects = render(tmp_path, {"network": network, "controller": {"subnet": "vnet.pods"}})
    agent = named(objects, "DaemonSet", "podpool-agent")["spec"]["template"]["spec"]["containers"][0]
    added = agent["securityContext"]["capabilities"].get("add", [])
    assert (["NET_ADMIN", "NET_RAW"] if uplink else []) == added
    assert bool(uplink) is ("--sysctl-dir=/host/sysctl-net" in agent["args"])


def test_the_cri_socket_is_not_mounted_unless_asked(tmp_path: Path) -> None:
    """It makes its holder root on the node."""
    for socket in ("", "/run/crio/crio.sock"):
        objects = render(tmp_path, merged(REQUIRED, {"agent": {"criSocket": socket}}))
        text = json.dumps(named(objects, "DaemonSet", "podpool-agent"))
        assert (socket and socket in text) or ("cri.sock" not in text and "--cri-socket=none" in text)


def test_a_daemon_has_probes_and_a_port_of_the_table(objects: list[Any]) -> None:
    """docs/install.md lists the ports that the nodes must have free."""
    ports = {"agent": {7784}, "controller": {7783}, "ledger": {7780, 7785}}
    for container in containers(objects):
        if container["name"] in ports:
            assert ports[container["name"]] == {each["hostPort"] for each in container["ports"]}
            probed = {each: container[each]["httpGet"]["path"] for each in container if each.endswith("Probe")}
            assert {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"} == probed


def test_nothing_needs_an_address_of_podpool_to_start(objects: list[Any]) -> None:
    """What gives addresses is in the host network, tolerates nodes without one, and asks no cluster DNS."""
    for each in workloads(objects):
        spec = each["spec"]["template"]["spec"]
        if each["metadata"]["name"] != "podpool-dashboard":
            assert spec["hostNetwork"]
            assert "Default" == spec["dnsPolicy"]
            keys = {one.get("key") for one in spec["tolerations"]}
            assert None in keys or "node.kubernetes.io/not-ready" in keys


def test_objects_are_in_kube_system_and_labelled(objects: list[Any]) -> None:
    for each in objects:
        assert "podpool" == each["metadata"]["labels"]["app.kubernetes.io/name"], each["metadata"]
        assert each["metadata"].get("namespace", "kube-system") == "kube-system"


@pytest.mark.parametrize("profile", ["bridge", "macvlan", "ipvlan", "routed", "azure"])
def test_the_agent_accepts_its_cni_options(profile: str, tmp_path: Path) -> None:
    network = {"profile": profile, "bridge": "br0", "master": "eth1", "mtu": 1400}
    objects = render(tmp_path, {"network": network, "controller": {"subnet": "vnet.pods"}})
    options = agent_options(objects)
    plugin = interface_plugin(str(options["cni_profile"]), str(options["cni_options"]))
    assert 1400 == plugin["mtu"]
    wanted = {"bridge": "br0", "macvlan": "eth1", "ipvlan": "eth1"}.get(profile)
    assert wanted == plugin.get("bridge", plugin.get("master"))


def test_a_configuration_of_the_user_is_used_unchanged(tmp_path: Path) -> None:
    conflist = json.dumps({"cniVersion": "1.0.0", "name": "mine", "plugins": [{"type": "ptp"}]})
    network = {"profile": "custom", "conflist": conflist}
    objects = render(tmp_path, {"network": network, "controller": {"subnet": "vnet.pods"}})
    assert conflist == named(objects, "ConfigMap", "podpool-cni")["data"]["podpool.conflist"].strip()
    assert "/etc/podpool/cni/podpool.conflist" == agent_options(objects)["cni_template"]


def test_the_controller_knows_the_ledger_by_what_helm_generated(tmp_path: Path) -> None:
    objects = render(tmp_path, REQUIRED)
    token = named(objects, "Secret", "podpool-ledger-cluster")["data"]["token"]
    assert token != named(objects, "Secret", "podpool-ledger-admin")["data"]["token"]
    assert {"ca.crt", "tls.crt", "tls.key"} == named(objects, "Secret", "podpool-ledger-tls")["data"].keys()
    (controller,) = named(objects, "Deployment", "podpool-controller")["spec"]["template"]["spec"]["containers"]
    assert "--ledger-server-name=podpool-ledger.kube-system.svc" in controller["args"]
    text = json.dumps(named(objects, "Deployment", "podpool-controller"))
    assert "podpool-ledger-admin" not in text


def test_the_private_key_stays_with_the_ledger(tmp_path: Path) -> None:
    spec = named(render(tmp_path, REQUIRED), "Deployment", "podpool-controller")["spec"]["template"]["spec"]
    (ca,) = [each["secret"] for each in spec["volumes"] if each["name"] == "ca"]
    assert [{"key": "ca.crt", "path": "ca.crt"}] == ca["items"]


def test_another_source_of_certificates_and_tokens_is_used(tmp_path: Path) -> None:
    tls = {"source": "certManager", "issuer": "internal"}
    objects = render(tmp_path, merged(REQUIRED, {"ledger": {"tls": tls, "tokens": {"generate": False}}}))
    assert not [each for each in objects if each["kind"] == "Secret"]
    assert "internal" == named(objects, "Certificate", "podpool-ledger")["spec"]["issuerRef"]["name"]
    external: dict[str, Any] = {"mode": "external", "url": "https://ledger.example:7780"}
    external |= {"tls": {"source": "secret"}, "tokens": {"generate": False}}
    objects = render(tmp_path, merged(REQUIRED, {"ledger": external}))
    assert "--ledger=https://ledger.example:7780" in json.dumps(named(objects, "Deployment", "podpool-controller"))
    assert not [each for each in objects if each["metadata"]["name"] == "podpool-ledger"]


def agent_options(objects: list[Any]) -> dict[str, Any]:
    """Return the options of the agent's command line."""
    (agent,) = named(objects, "DaemonSet", "podpool-agent")["spec"]["template"]["spec"]["containers"]
    command, words = find_command(agent["args"])
    assert isinstance(command, Command)
    return dict(parse(command, words, environment={}))
