"""`podpool agent run` on a disk that kills its process, in the middle of the write that MORTAL_WRITE counts."""

import os
import signal

from podpool.__main__ import main
from podpool.runtime.disk import LocalDisk

append = LocalDisk.append
left = int(os.environ["MORTAL_WRITE"])


def until_death(disk: LocalDisk, name: str, data: bytes) -> None:
    """Write; the last time only a part of it, which is another each time."""
    global left  # noqa: PLW0603  one process, one death
    left -= 1
    if left:
        append(disk, name, data)
        return
    append(disk, name, data[: os.getpid() % (len(data) + 1)])
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    setattr(LocalDisk, "append", until_death)  # noqa: B010  this is what the program is for
    main()
