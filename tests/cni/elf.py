"""Reads headers of ELF files, of either word size and either byte order."""

import struct

MACHINES = {"x86_64": 62, "aarch64": 183, "armv7l": 40, "ppc64le": 21, "riscv64": 243, "s390x": 22}
"""ELF machine numbers."""
LOADED, INTERPRETER = 1, 3
"""Segment types; the interpreter is the dynamic loader."""


class Elf:
    """An ELF executable."""

    def __init__(self, content: bytes) -> None:
        assert b"\x7fELF" == content[:4]
        self._content = content
        self._wide = {1: False, 2: True}[content[4]]
        self._order = {1: "<", 2: ">"}[content[5]]

    @property
    def machine(self) -> int:
        """The machine number."""
        return self._read("H", 18)[0]

    @property
    def segments(self) -> list[int]:
        """The segment types."""
        (start,) = self._read("Q", 32) if self._wide else self._read("I", 28)
        size, count = self._read("HH", 54 if self._wide else 42)
        return [self._read("I", start + size * each)[0] for each in range(count)]

    def _read(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self._order + form, self._content, at)
