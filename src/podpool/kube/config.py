"""Where the API server is, and who we are there: from inside a Pod, or from a kubeconfig.

A token file is read again whenever it has changed: the kubelet renews it long before it ends.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from podpool.core.errors import InvalidInput
from podpool.runtime.http import Headers, HttpTransport

F = TypeVar("F")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a Pod finds its own account."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A part of a kubeconfig; what we do not know is left alone."""


class Cluster(_Part, frozen=True, kw_only=True):
    """An API server."""

    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False


class User(_Part, frozen=True, kw_only=True):
    """An account."""

    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""


class Context(_Part, frozen=True, kw_only=True):
    """An account at an API server."""

    cluster: str
    user: str
    namespace: str = "default"


class _NamedCluster(_Part, frozen=True, kw_only=True):
    name: str
    cluster: Cluster


class _NamedUser(_Part, frozen=True, kw_only=True):
    name: str
    user: User | None = None


class _NamedContext(_Part, frozen=True, kw_only=True):
    name: str
    context: Context


class Kubeconfig(_Part, frozen=True, kw_only=True):
    """A kubeconfig."""

    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


def connect(environ: Mapping[str, str] = os.environ) -> HttpTransport:
    """Find the API server as kubectl does: `KUBECONFIG`, then the Pod's own account, then `~/.kube/config`."""
    if environ.get("KUBECONFIG"):
        return from_kubeconfig(Path(environ["KUBECONFIG"]))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    return from_kubeconfig(Path.home() / ".kube" / "config")


def in_cluster(environ: Mapping[str, str] = os.environ, *, account: Path = ACCOUNT) -> HttpTransport:
    """Go to the API server with the account of the Pod that we run in."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return HttpTransport(base, tls=tls, headers=from_file(account / "token"))


def from_kubeconfig(path: Path, *, context: str | None = None) -> HttpTransport:
    """Go to the API server of a context, the current one unless told."""
    config = read_kubeconfig(path)
    wanted = context or config.current_context
    chosen = _find(path, "context", wanted, {each.name: each.context for each in config.contexts})
    cluster = _find(path, "cluster", chosen.cluster, {each.name: each.cluster for each in config.clusters})
    user = _find(path, "user", chosen.user, {each.name: each.user or User() for each in config.users})
    tls = _tls(cluster, user, path.parent) if cluster.server.startswith("https:") else None
    return HttpTransport(cluster.server, tls=tls, headers=_headers(user, path.parent))


def read_kubeconfig(path: Path) -> Kubeconfig:
    """Read a kubeconfig; raises `InvalidInput`."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidInput("kubeconfig", str(path), error.strerror or "cannot be read") from error
    try:
        return msgspec.convert(_plain(text), Kubeconfig)
    except ImportError as error:
        raise InvalidInput("kubeconfig", str(path), "is YAML, which needs PyYAML; JSON needs nothing") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidInput("kubeconfig", str(path), str(error)) from error


def from_file(path: Path) -> Headers:
    """Take the token from a file, which is read again when it has changed."""
    read: tuple[int, str] | None = None

    def headers() -> Mapping[str, str]:
        nonlocal read
        changed = path.stat().st_mtime_ns
        if read is None or read[0] != changed:
            read = (changed, path.read_text().strip())
        return {"authorization": f"Bearer {read[1]}"}

    return headers


def _plain(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)  # JSON is YAML, and needs no library
    except msgspec.DecodeError:
        return msgspec.yaml.decode(text)


def _find(path: Path, what: str, name: str, known: Mapping[str, F]) -> F:
    if name not in known:
        raise InvalidInput(what, name, f"{path} knows {', '.join(known) or 'none'}")
    return known[name]


def _headers(user: User, home: Path) -> Headers:
    if user.token_file:
        return from_file(home / user.token_file)
    return lambda: {"authorization": f"Bearer {user.token}"} if user.token else {}


def _tls(cluster: Cluster, user: User, home: Path) -> ssl.SSLContext:
    if cluster.certificate_authority:
        tls = ssl.create_default_context(cafile=str(home / cluster.certificate_authority))
    elif cluster.certificate_authority_data:
        tls = ssl.create_default_context(cadata=_decoded(cluster.certificate_authority_data).decode())
    else:
        tls = ssl.create_default_context()
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    _load_certificate(tls, user, home)
    return tls


def _load_certificate(tls: ssl.SSLContext, user: User, home: Path) -> None:
    if user.client_certificate:
        tls.load_cert_chain(home / user.client_certificate, home / user.client_key)
    elif user.client_certificate_data:
        with tempfile.TemporaryDirectory() as place:  # ssl reads files only
            certificate, key = Path(place, "certificate"), Path(place, "key")
            certificate.write_bytes(_decoded(user.client_certificate_data))
            key.write_bytes(_decoded(user.client_key_data))
            tls.load_cert_chain(certificate, key)


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
