"""Keeps the CNI configuration in place while the agent runs: without it a runtime starts no Pod.

It is written at once, and restored when it is removed or changed. After each restoration the next check comes later: a
component that removes the configurations of others, such as Cilium with `cni.exclusive`, may win. Files are accessed in
a thread, because a file system that hangs must not stop the agent.
"""

import asyncio
from pathlib import Path

from podpool.cni import conflist
from podpool.runtime.logging import get_logger

RETRY_INTERVAL = 5.0
"""Seconds between attempts to write."""
CHECK_INTERVAL, LONGEST_INTERVAL = 10.0, 300.0
"""Seconds between checks; doubled after each restoration up to the longest, and halved after each check without one."""

log = get_logger(__name__)


async def keep_conflist(conf_dir: Path, content: bytes, *, interval: float = CHECK_INTERVAL) -> None:
    """Write the configuration, from when on the node is Ready, and restore it until cancelled."""
    await _write(conf_dir, content)
    shortest, longest = interval, interval * LONGEST_INTERVAL / CHECK_INTERVAL
    while True:
        await asyncio.sleep(interval)
        restored = await _restore(conf_dir, content)
        interval = min(interval * 2, longest) if restored else max(interval / 2, shortest)


async def _write(conf_dir: Path, content: bytes) -> None:
    warned = False
    while True:
        try:
            path = await asyncio.to_thread(conflist.write, conf_dir, content)
        except OSError as error:
            if not warned:
                log.warning("cannot write the CNI configuration, node stays NotReady", error=str(error))
            warned = True
            await asyncio.sleep(RETRY_INTERVAL)
        else:
            log.info("CNI configuration written", path=str(path))
            return


async def _restore(conf_dir: Path, content: bytes) -> bool:
    """Return whether the configuration was missing or changed; the next check follows a failure later."""
    path = str(conf_dir / conflist.NAME)
    try:
        if not await asyncio.to_thread(conflist.restore, conf_dir, content):
            return False
    except OSError as error:
        log.warning("cannot restore the CNI configuration, no Pod can start", path=path, error=str(error))
    else:
        log.warning("CNI configuration was removed or changed, restored; use --cni-template to change it", path=path)
    return True
