"""Frames of a journal file: a header with length and checksums, then the payload, which is JSON.

The length has its own checksum, because a corrupt length would look like a torn tail. The first development versions
wrote frames without it. There a tail counts as torn only if it cannot be a whole record or more: a header has a zero
byte, which JSON has not, and a record ends in a brace. They wrote shared ranges in lines of JSON.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Protocol

import msgspec


class Layout(Protocol):
    """How the payloads of a file are kept apart."""

    def payloads(self, content: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield each valid payload up to the first that is not, and where it ends."""

    def is_damage(self, tail: bytes) -> bool:
        """Return whether what follows the valid payloads is more than a torn write."""


class FrameLayout:
    """Frames with a header."""

    def __init__(self, header: str) -> None:
        self._header = struct.Struct(header)

    def encode(self, payload: bytes) -> bytes:
        """Return a payload with its header."""
        return self._header.pack(len(payload), _length_checksum(len(payload)), zlib.crc32(payload)) + payload

    def payloads(self, content: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the payload of each valid frame up to the first that is not, and where the frame ends."""
        at = 0
        while at + self._header.size <= len(content):
            length, *length_checksum, checksum = self._header.unpack_from(content, at)
            payload = content[at + self._header.size : at + self._header.size + length]
            if not _is_length(length, length_checksum) or len(payload) < length or zlib.crc32(payload) != checksum:
                return
            at += self._header.size + length
            yield payload, at

    def is_damage(self, tail: bytes) -> bool:
        """Return whether this is not a prefix of a valid frame."""
        if len(tail) < self._header.size:
            return False
        length, *length_checksum, _ = self._header.unpack_from(tail)
        payload = tail[self._header.size :]
        if length <= len(payload) or not _is_length(length, length_checksum):
            return True
        return not length_checksum and (b"\0" in payload or payload.endswith(b"}"))


class LineLayout:
    """Lines of JSON, without checksums."""

    def payloads(self, content: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield each line up to the first that is not JSON, and where it ends."""
        at = 0
        for line in content.split(b"\n")[:-1]:
            if not _is_json(line):
                return
            at += len(line) + 1
            yield line, at

    def is_damage(self, tail: bytes) -> bool:
        """Return whether there is a whole line."""
        return b"\n" in tail


FRAMES, LINES = FrameLayout("!III"), LineLayout()
UNCHECKED_LENGTHS = FrameLayout("!II")
"""Frames without a checksum of the length."""


def frame_layout(content: bytes) -> FrameLayout:
    """Return the layout of the first frame of a file; a frame that is valid in one layout is not in the other."""
    layouts = (each for each in (FRAMES, UNCHECKED_LENGTHS) if any(each.payloads(content)))
    return next(layouts, FRAMES)


def _length_checksum(length: int) -> int:
    return zlib.crc32(struct.pack("!I", length))


def _is_length(length: int, checksum: list[int]) -> bool:
    """Return whether a length can be one; a file of zeros has no frames."""
    return length > 0 and checksum in ([], [_length_checksum(length)])


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
