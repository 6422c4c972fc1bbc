"""Removes podpool's files from a node, after its agent has stopped: a running one would restore the CNI configuration.

The directories themselves stay, empty: in a container they are mount points. What another plugin or component wrote
stays too; a plugin that podpool had replaced is restored.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from podpool.cni import conflist, install


def remove_node_files(
    *, bin_dir: Path, names: Sequence[str], conf_dir: Path | None, emptied: Iterable[Path]
) -> list[Path]:
    """Remove the CNI configuration, the plugins and the content of directories; return what was removed or restored.

    The configuration goes first: without it a runtime calls no plugin.
    """
    found = [conflist.remove(conf_dir)] if conf_dir else []
    found += [install.uninstall(bin_dir, name=name) for name in names]
    return [*filter(None, found), *(path for directory in emptied for path in _emptied(directory))]


def _emptied(directory: Path) -> list[Path]:
    """Remove the content of a directory."""
    content = sorted(directory.iterdir()) if directory.is_dir() else []
    for path in content:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return content
