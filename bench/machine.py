"""What a figure depends on: the machine, without anything that would tell whose it is, and our own versions."""

from __future__ import annotations

import os
import platform

import msgspec

import podpool


def machine() -> dict[str, str | int]:
    """Cores that we may use, memory, kernel and Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def own_versions() -> dict[str, str]:
    """Ours; those of the other sides come from their scenarios."""
    return {"podpool": podpool.__version__, "msgspec": msgspec.__version__}
