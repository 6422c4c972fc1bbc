"""The root file system of the image, in three layers: the Python runtime, the dependencies, podpool.

Packages are unpacked, not installed: no maintainer script runs, so what these would make is made here. What a service
does not need is left out: documentation except licenses, test suites, headers, tools that build or install.
"""

from __future__ import annotations

import platform
import re
import subprocess
import tempfile
from pathlib import Path

from parts.steps import PartMissing
from tools.image import debian, dependencies, filesystem
from tools.image.filesystem import Tree, directory, file, symlink

USER = 65532
LIBRARIES = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

UNUSED = re.compile(
    r"""
    usr/share/(?!doc/[^/]+/copyright$|common-licenses/|ca-certificates/mozilla/|python3/)  # documentation
    | usr/share/python3/debpython
    | (boot|home|root|usr/(games|include|src|local)|media|mnt|srv|opt|var/(backups|local|lock|log|mail|run|spool))(/|$)
    | etc/(?!debian_version$|host\.conf$)
    | usr/sbin/
    | usr/lib/[^/]+/(gconv|audit|engines-3|perl|pkgconfig)/                     # loaded by names that nothing uses
    | usr/lib/[^/]+/lib(BrokenLocale|memusage|pcprofile|_?c_malloc_debug|thread_db|nsl|nss_(compat|hesiod))\.
    | usr/lib/(mime|tmpfiles\.d|valgrind)/
    | usr/lib/python3(\.\d+)?/(test|idlelib|tkinter|turtledemo|pydoc_data|ensurepip|lib2to3|curses|dbm|_pyrepl|venv)/
    | usr/lib/python3\.\d+/(turtle|antigravity|this|sitecustomize|EXTERNALLY-MANAGED).*
    | usr/lib/python3\.\d+/lib-dynload/(_test|_ctypes_test|_xxtestfuzz|xx|_curses|_dbm|_gdbm|readline).*
    | .*/__pycache__/.*
    """,
    re.VERBOSE,
)
"""Paths of Debian's packages that are left out."""

UNUSED_OF_WHEELS = re.compile(
    r".*/(tests?|bin|include|__pycache__)/.*|.*\.(c|cpp|h|hpp|pyx|pxd|pyi|pxi)|.*/(RECORD|REQUESTED)"
)
"""Files of wheels that are left out."""

COMPILE = """
import py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for line in sys.stdin:
    source, target, name = line.rstrip("\\n").split("\\t")
    py_compile.compile(source, target, name, doraise=True, invalidation_mode=mode)
"""


def runtime(packages: list[Path]) -> Tree:
    """Return the files of Debian's packages that are needed, and those that their scripts would make."""
    unpacked: Tree = {}
    for package in packages:
        unpacked |= debian.unpack(package)
    kept = filesystem.without(unpacked, lambda path: bool(UNUSED.fullmatch(path) or UNUSED.match(path + "/")))
    certificates = [path for path in kept if path.startswith("usr/share/ca-certificates/")]
    bundle = b"".join(kept[path].content or b"" for path in sorted(certificates))
    return {path: entry for path, entry in kept.items() if path not in certificates} | {
        **{name: symlink(f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")},
        "usr/bin/python3": symlink(f"python{dependencies.PYTHON}"),
        "tmp": directory(0o1777),
        "home/podpool": directory(0o700, owner=USER),
        "etc/passwd": file(
            f"root:x:0:0:root:/root:/sbin/nologin\npodpool:x:{USER}:{USER}:podpool:/home/podpool:/sbin/nologin\n"
        ),
        "etc/group": file(f"root:x:0:\npodpool:x:{USER}:\n"),
        "etc/nsswitch.conf": file("passwd: files\ngroup: files\nhosts: files dns\n"),
        CERTIFICATES: file(bundle),
    }


def wheels(installed: Tree) -> Tree:
    """Return the files of installed wheels that are needed."""
    return filesystem.without(installed, lambda path: bool(UNUSED_OF_WHEELS.fullmatch(path)))


def compiled(layer: Tree, *, runtime_here: Tree) -> Tree:
    """Return a layer with its bytecode, which this machine's runtime compiles: it is the same for every architecture.

    One process compiles a layer in a fixed order, because what is interned before influences how a constant is written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        filesystem.write(runtime_here, root / "runtime")
        lines, results = [], {}
        for number, (path, content) in enumerate(sorted(sources(layer))):
            source, target = root / f"{number}.py", root / f"{number}.pyc"
            source.write_bytes(content)
            lines.append(f"{source}\t{target}\t/{path}\n")
            results[bytecode_path(path)] = target
        run_python(root / "runtime", architecture_of_this_machine(), COMPILE, "".join(lines))
        return layer | {path: file(target.read_bytes()) for path, target in results.items()}


def sources(tree: Tree) -> list[tuple[str, bytes]]:
    """Return paths and contents of a layer's modules."""
    return [(path, entry.content) for path, entry in tree.items() if path.endswith(".py") and entry.content is not None]


def bytecode_path(path: str) -> str:
    """Return where Python looks for the bytecode of a module."""
    package, _, module = path.rpartition("/")
    return f"{package}/__pycache__/{module.removesuffix('.py')}.cpython-{dependencies.PYTHON.replace('.', '')}.pyc"


def run_python(root: Path, architecture: str, script: str, given: str) -> None:
    """Run a script with the Python of an unpacked runtime, through its own loader and C library."""
    loader = root / "usr/lib" / LIBRARIES[architecture] / LOADERS[architecture]
    libraries = root / "usr/lib" / LIBRARIES[architecture]
    done = subprocess.run(
        [loader, "--library-path", libraries, root / f"usr/bin/python{dependencies.PYTHON}", "-SsP", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        input=given,
        env={
            "PYTHONHOME": str(root / "usr"),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
        },
        timeout=600,
    )
    if done.returncode:
        raise PartMissing(f"the image's Python cannot compile its modules: {done.stderr.strip()}")


def architecture_of_this_machine() -> str:
    """Return the image's architecture that runs here."""
    for architecture, machine in dependencies.MACHINES.items():
        if machine == platform.machine():
            return architecture
    raise PartMissing(
        f"the image is built on {' or '.join(dependencies.MACHINES.values())}, this is {platform.machine()}."
    )
