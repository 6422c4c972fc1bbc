"""A root file system in memory, and as the tar archive of a layer: the same files always become the same bytes."""

from __future__ import annotations

import io
import posixpath
import stat
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A directory, a file or a symbolic link: whichever of `content` and `link` is set; neither is a directory."""

    mode: int
    content: bytes | None = None
    link: str | None = None
    owner: int = 0

    @property
    def is_directory(self) -> bool:
        """Return whether it is a directory."""
        return self.content is None and self.link is None


Tree = dict[str, Entry]
"""Entries by their path, without a slash at either end."""


def file(content: bytes | str, *, executable: bool = False) -> Entry:
    """Return a file of root's that everybody may read."""
    return Entry(mode=0o755 if executable else 0o644, content=content.encode() if isinstance(content, str) else content)


def directory(mode: int = 0o755, *, owner: int = 0) -> Entry:
    """Return a directory."""
    return Entry(mode=mode, owner=owner)


def symlink(target: str) -> Entry:
    """Return a symbolic link."""
    return Entry(mode=0o777, link=target)


def from_tar(archive: tarfile.TarFile) -> Tree:
    """Return the content of an archive; set-uid and set-gid bits are dropped, and hard links become files."""
    tree: Tree = {}
    for member in archive:
        path = posixpath.normpath(member.name).lstrip("/")
        if path == ".":
            continue
        if member.isdir():
            tree[path] = directory(member.mode & 0o1777)
        elif member.issym():
            tree[path] = symlink(member.linkname)
        elif member.islnk():
            tree[path] = tree[posixpath.normpath(member.linkname)]
        elif opened := archive.extractfile(member):
            tree[path] = Entry(mode=member.mode & 0o777, content=opened.read())
    return tree


def from_directory(root: Path, *, below: str) -> Tree:
    """Return the files of a directory as they are to be below a path; of their modes only "executable" is kept."""
    return {
        f"{below}/{path.relative_to(root)}": file(
            path.read_bytes(), executable=bool(path.stat().st_mode & stat.S_IXUSR)
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def without(tree: Tree, unwanted: Callable[[str], bool]) -> Tree:
    """Return the files and links that are wanted; directories that become empty are dropped, except top-level ones."""
    kept = {path: entry for path, entry in tree.items() if not unwanted(path)}
    used = {parent for path, entry in kept.items() if not entry.is_directory for parent in parents(path)}
    return {path: entry for path, entry in kept.items() if not entry.is_directory or "/" not in path or path in used}


def parents(path: str) -> list[str]:
    """Return the directories above a path, the topmost first."""
    words = path.split("/")[:-1]
    return ["/".join(words[: depth + 1]) for depth in range(len(words))]


def write(tree: Mapping[str, Entry], root: Path) -> None:
    """Write a tree to disk, to run what is in it."""
    for path, entry in sorted(tree.items()):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.link is not None:
            place.symlink_to(entry.link)
        elif entry.content is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(entry.content)
            place.chmod(entry.mode)


def layer(tree: Mapping[str, Entry], *, below: Mapping[str, Entry] | None = None) -> bytes:
    """Return a tree as a tar archive; directories that neither it nor a layer below it has are added."""
    known = set(tree) | set(below or {})
    missing = {parent for path in tree for parent in parents(path)} - known
    complete = dict(tree) | {path: directory() for path in missing}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in sorted(complete.items()):
            member = tarfile.TarInfo(path)
            member.mode, member.uid, member.gid = entry.mode, entry.owner, entry.owner
            if entry.link is not None:
                member.type, member.linkname = tarfile.SYMTYPE, entry.link
            elif entry.content is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(entry.content)
            archive.addfile(member, io.BytesIO(entry.content or b""))
    return buffer.getvalue()
