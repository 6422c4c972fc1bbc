"""Builds the CNI plugin for every architecture into the wheel.

An editable install carries none: it builds its own machine's when it is first asked for.
"""

import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "src"))

from podpool.cni.build import ARCHITECTURES, BuildFailed, NoCompiler, build, plugin_name


class PluginHook(BuildHookInterface[Any]):
    """Adds the plugins as files of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what can be built; a machine whose plugin is left out builds its own, or has the one in Python.

        Our own that does not compile is no such case: the same source would not compile where it is used, either.
        """
        if version != "standard":
            return
        for architecture in ARCHITECTURES:
            try:
                built = build(architecture)
            except (NoCompiler, BuildFailed) as error:
                if isinstance(error, BuildFailed) and architecture == platform.machine():
                    raise
                self.app.display_warning(f"the wheel is without a plugin for {architecture}: {error}")
            else:
                build_data["force_include"][str(built)] = f"podpool/cni/bin/{plugin_name(architecture)}"
