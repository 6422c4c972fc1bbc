"""Machine and versions of a run, without anything that identifies its owner."""

from __future__ import annotations

import os
import platform

import msgspec

import podpool


def machine() -> dict[str, str | int]:
    """Return usable cores, memory, kernel and Python version."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def own_versions() -> dict[str, str]:
    """Return versions of podpool and its libraries; scenarios add those of peers."""
    return {"podpool": podpool.__version__, "msgspec": msgspec.__version__}
