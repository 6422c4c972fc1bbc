"""The part of a container runtime that calls CNI plugins: a chain forward for ADD, backward for DEL.

A plugin gets the configuration and the previous result on stdin, and the rest in its environment. DEL gets the result
of ADD again and calls every plugin even after a failure, as runtimes do.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parts.namespaces import Namespaces

Json = dict[str, Any]


class PluginFailed(Exception):
    """A plugin failed; `code`, `msg` and `details` are those of its error."""

    def __init__(self, plugin: str, command: str, error: Json) -> None:
        self.plugin = plugin
        self.command = command
        self.code: int = error.get("code", 0)
        self.msg: str = error.get("msg", "")
        self.details: str = error.get("details", "")
        super().__init__(f"{plugin} {command}: {self.msg} (code {self.code}) {self.details}".rstrip())


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A Pod's sandbox, as the runtime passes it to plugins."""

    container: str
    netns: str
    interface: str = "eth0"
    args: Mapping[str, str] | None = None
    """For CNI_ARGS, such as K8S_POD_NAME."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A network configuration list, and the directories of its plugins."""

    namespaces: Namespaces
    path: Sequence[Path]
    conflist: Json
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the plugins in addition to those of CNI."""

    def add(self, pod: Pod) -> Json:
        """Connect the Pod and return the last plugin's result. After an error the caller calls DEL, as runtimes do."""
        result: Json | None = None
        for plugin in self.conflist["plugins"]:
            result = self.call("ADD", pod, plugin, result)
        return result or {}

    def check(self, pod: Pod, result: Json) -> None:
        """Call CHECK of each plugin."""
        for plugin in self.conflist["plugins"]:
            self.call("CHECK", pod, plugin, result)

    def delete(self, pod: Pod, result: Json | None = None) -> None:
        """Disconnect the Pod; the first error is raised after the last plugin was called."""
        errors = []
        for plugin in reversed(self.conflist["plugins"]):
            try:
                self.call("DEL", pod, plugin, result)
            except PluginFailed as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def call(self, command: str, pod: Pod, plugin: Json, previous: Json | None) -> Json:
        """Call one plugin."""
        config = plugin | {key: self.conflist[key] for key in ("cniVersion", "name")}
        if previous:
            config["prevResult"] = previous
        done = subprocess.run(
            self.namespaces.inside([self.find(plugin["type"])]),
            check=False,
            input=json.dumps(config),
            capture_output=True,
            text=True,
            env=self.environment(command, pod),
        )
        try:
            said = json.loads(done.stdout or "{}")
        except json.JSONDecodeError:
            said = {"msg": done.stdout}
        if done.returncode:
            raise PluginFailed(plugin["type"], command, said or {"msg": done.stderr})
        return dict(said)

    def environment(self, command: str, pod: Pod) -> dict[str, str]:
        """Return the environment that the CNI specification requires."""
        return {
            **self.env,
            "PATH": os.environ.get("PATH", os.defpath),
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": pod.container,
            "CNI_NETNS": pod.netns,
            "CNI_IFNAME": pod.interface,
            "CNI_ARGS": ";".join(f"{name}={value}" for name, value in (pod.args or {}).items()),
            "CNI_PATH": os.pathsep.join(map(str, self.path)),
        }

    def find(self, plugin: str) -> Path:
        """Return a plugin's executable from the first directory that has it."""
        found = (directory / plugin for directory in self.path if (directory / plugin).exists())
        if program := next(found, None):
            return program
        raise PluginFailed(plugin, "find", {"msg": f"not in {', '.join(map(str, self.path))}"})
