"""A containerd that runs podpool's image: in its own mount and process namespaces, which end everything it started."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from parts.daemon import Daemon, dying_with_us
from parts.debian import command
from parts.recipes import program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CONFIG = """version = 3
root = "{home}/root"
state = "{home}/state"
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
[grpc]
address = "{home}/c.sock"
[ttrpc]
address = "{home}/t.sock"
[plugins.'io.containerd.internal.v1.opt']
path = "{home}/opt"
"""
RUNC = "/run/containerd/runc"
"""Where runc keeps the state of containers."""


class Runtime:
    """containerd, through ctr."""

    def __init__(self, home: Path) -> None:
        self.home = home
        config = home / "containerd.toml"
        config.write_text(CONFIG.format(home=home))
        isolated = (command("unshare"), "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
        own_state = f'mkdir -p {RUNC} && mount -t tmpfs tmpfs {RUNC} && exec "$@"'
        path = f"PATH={program('containerd').parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        self.daemon = Daemon(
            [*isolated, "sh", "-c", own_state, "sh", command("env"), path, program("containerd"), "--config", config],
            log=home / "log",
            ready=(home / "c.sock").exists,
        )

    def ctr(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Run ctr; its exit code is the caller's to judge."""
        return subprocess.run(self.argv(*argv), check=False, capture_output=True, text=True, timeout=120)

    def succeed(self, *argv: str | Path) -> str:
        """Run ctr, which must succeed; return its output."""
        done = self.ctr(*argv)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def argv(self, *argv: str | Path) -> list[str | Path]:
        return [*dying_with_us(), program("ctr"), "--address", self.home / "c.sock", "--namespace", "k8s.io", *argv]

    def run(
        self, image: str, *argv: str | Path, options: Sequence[str] = (), mounts: Mapping[Path, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a container until it exits."""
        return self.ctr(*container(image, "once", argv, options, mounts or {}))


def container(
    image: str, name: str, argv: Sequence[str | Path], options: Sequence[str], mounts: Mapping[Path, str]
) -> list[str | Path]:
    """Return the words of `ctr run`: read-only root, the image's user, and no capabilities unless options add them."""
    bound: list[str] = []
    for source, target in mounts.items():
        bound += ["--mount", f"type=bind,src={source},dst={target},options=rbind:rw"]
    return ["run", "--rm", "--read-only", *bound, *options, image, name, *argv]
