"""Configuration of test nodes: setup commands, and files of containerd and kubelet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parts.debian import command
from parts.image import NAME

if TYPE_CHECKING:
    from pathlib import Path

BRIDGE, UPLINK = "pods0", "uplink"
CONTAINERD = "/run/containerd/containerd.sock"
KUBELET_PORT = 10255
"""Port of the kubelet's Pod list, on the node's loopback."""
READY = "the node is there"

# what a kubelet would write into the kernel of this machine
SETTINGS = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}
SET_UP = f"""set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lib /run/log /run/sys
mount --bind /run/lib /var/lib
mount --bind /run/log /var/log
cover() {{{{ file=/run/sys/$(echo "$1" | tr / _); echo "$2" > "$file"; mount --bind "$file" "/proc/sys/$1"; }}}}
{{covers}}
{{ip}} link set lo up
{{ip}} link add {BRIDGE} type bridge
{{ip}} address add {{address}}/24 dev {BRIDGE}
{{ip}} link set {BRIDGE} up
echo {READY}
trap '' CHLD  # the kernel then reaps orphaned processes
exec sleep infinity
"""


def set_up(*, address: str, boot_id: str) -> str:
    """Return the setup script of a node."""
    values = SETTINGS | {"kernel/random/boot_id": boot_id}
    covers = "\n".join(f"cover {name} {value}" for name, value in values.items())
    return SET_UP.format(covers=covers, ip=command("ip"), address=address)


def containerd_config(*, plugins: Path, configs: Path) -> str:
    """Return the configuration of containerd."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 3
root = "/run/containerd/root"
state = "/run/containerd/state"

[grpc]
address = "{CONTAINERD}"

[plugins.'io.containerd.internal.v1.opt']
path = "/run/containerd/opt"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{NAME}"

[{runtime}]
restrict_oom_score_adj = true # every sandbox fails without, where root has not all rights

[{runtime}.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{configs}"

[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{runtime}.containerd.runtimes.runc.options]
BinaryName = "{command("runc")}"
SystemdCgroup = false
"""


def kubelet_config(*, cgroup: str, manifests: Path) -> dict[str, Any]:
    """Return the configuration of the kubelet."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "kubeAPIBurst": 1000,
        "kubeAPIQPS": 500,
        "maxPods": 300,
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "1s",
        "oomScoreAdj": 0,
        "podLogsDir": "/run/log/pods",
        "readOnlyPort": KUBELET_PORT,
        "resolvConf": "",
        "shutdownGracePeriod": "0s",
        "staticPodPath": str(manifests),
        "volumePluginDir": "/run/kubelet/volume-plugins",
    }
