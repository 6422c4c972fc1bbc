"""Whereabouts' flat file, for those who run on no node and must be told where it is."""

from pathlib import Path

from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import read_object, read_struct
from podpool.whereabouts.raw_config import RawIpamConfig

OPTION = "--flat-file"


def read_flat_file(path: str) -> bytes | None:
    """Read the file that was named, if one was; raises `InvalidInput` when nothing can be meant by it."""
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(OPTION, path, f"cannot be read: {error.strerror}") from None
    read_struct(read_object(content, what=OPTION), RawIpamConfig, at=OPTION)
    return content
