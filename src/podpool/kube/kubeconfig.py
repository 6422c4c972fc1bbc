"""Kubeconfigs, merged as kubectl does: the first file that defines a name wins.

A path in a file is relative to that file. Lists may be null.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from podpool.core.errors import InvalidInput

F = TypeVar("F")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A part of a kubeconfig; unknown fields are ignored."""


class KubeconfigCluster(_Part, frozen=True, kw_only=True):
    """An API server."""

    server: str
    tls_server_name: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""


class ExecEnvVar(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable of an exec plugin."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An exec credential plugin."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[ExecEnvVar] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class KubeconfigUser(_Part, frozen=True, kw_only=True):
    """An account."""

    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecPlugin | None = None


class KubeconfigContext(_Part, frozen=True, kw_only=True):
    """An account at an API server."""

    cluster: str
    user: str
    namespace: str = ""


class _NamedCluster(_Part, frozen=True, kw_only=True):
    name: str
    cluster: KubeconfigCluster


class _NamedUser(_Part, frozen=True, kw_only=True):
    name: str
    user: KubeconfigUser | None = None


class _NamedContext(_Part, frozen=True, kw_only=True):
    name: str
    context: KubeconfigContext


class Kubeconfig(_Part, frozen=True, kw_only=True):
    """One kubeconfig file."""

    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


class ResolvedContext(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and user of a context; paths are relative to the working directory, or absolute."""

    cluster: KubeconfigCluster
    user: KubeconfigUser
    namespace: str = ""
    """The namespace of requests without one; empty if the context has none."""


def resolve_context(paths: Sequence[Path], *, context: str | None = None) -> ResolvedContext:
    """Merge the files that exist and return a context, by default the current one."""
    configs = [(path, read_kubeconfig(path)) for path in paths if path.exists()]
    if not configs:
        raise InvalidInput("kubeconfig", _listed(paths), "No such file or directory")
    contexts: dict[str, KubeconfigContext] = {}
    clusters: dict[str, KubeconfigCluster] = {}
    users: dict[str, KubeconfigUser] = {}
    for path, config in reversed(configs):  # an earlier file overrides
        contexts |= {each.name: each.context for each in config.contexts or ()}
        clusters |= {each.name: _with_paths(each.cluster, path.parent) for each in config.clusters or ()}
        users |= {each.name: _with_paths(each.user or KubeconfigUser(), path.parent) for each in config.users or ()}
    current = next((config.current_context for _, config in configs if config.current_context), "")
    chosen = _find(paths, "context", context or current, contexts)
    return ResolvedContext(
        cluster=_find(paths, "cluster", chosen.cluster, clusters),
        user=_find(paths, "user", chosen.user, users),
        namespace=chosen.namespace,
    )


def read_kubeconfig(path: Path) -> Kubeconfig:
    """Return one file's contents; raises `InvalidInput`."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidInput("kubeconfig", str(path), error.strerror or "cannot be read") from error
    try:
        return msgspec.convert(_plain(text), Kubeconfig)
    except ImportError as error:
        missing = "is YAML, and PyYAML is not installed: install it, or use JSON"
        raise InvalidInput("kubeconfig", str(path), missing) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidInput("kubeconfig", str(path), str(error)) from error


def _plain(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)  # JSON is YAML, and needs no library
    except msgspec.DecodeError:
        return msgspec.yaml.decode(text)


_PATHS = ("certificate_authority", "client_certificate", "client_key", "token_file")
P = TypeVar("P", bound=KubeconfigCluster | KubeconfigUser)


def _with_paths(part: P, directory: Path) -> P:
    """Make the paths of a file relative to its directory; a plugin's command only if it contains a slash."""
    named = {each: getattr(part, each) for each in _PATHS if getattr(part, each, "")}
    moved = {each: str(directory / value) for each, value in named.items()}
    if isinstance(part, KubeconfigUser) and part.exec and os.sep in part.exec.command:
        plugin = msgspec.structs.replace(part.exec, command=str(directory / part.exec.command))
        return msgspec.structs.replace(part, **moved, exec=plugin)
    return msgspec.structs.replace(part, **moved)


def _find(paths: Sequence[Path], what: str, name: str, known: Mapping[str, F]) -> F:
    if name not in known:
        raise InvalidInput(what, name, f"{_listed(paths)} defines {', '.join(known) or 'none'}")
    return known[name]


def _listed(paths: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, paths))
