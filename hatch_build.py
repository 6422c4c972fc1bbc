"""Builds the CNI plugin for every architecture into the wheel.

An editable install carries none: it builds its own machine's when it is first asked for.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "src"))

from podpool.cni.build import ARCHITECTURES, NoCompiler, build, plugin_name


class PluginHook(BuildHookInterface[Any]):
    """Adds the plugins as files of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what can be built; a wheel without a plugin still builds its own where it is used."""
        if version != "standard":
            return
        for architecture in ARCHITECTURES:
            try:
                built = build(architecture, portable=True)
            except NoCompiler as error:
                self.app.display_warning(str(error))
            else:
                build_data["force_include"][str(built)] = f"podpool/cni/bin/{plugin_name(architecture)}"
