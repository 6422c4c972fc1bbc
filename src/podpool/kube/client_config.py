"""Connection to the API server: from a Pod's service account or from a kubeconfig.

A token file is read again when it has changed: the kubelet renews it long before it expires.
"""

import base64
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from podpool.core.errors import InvalidInput
from podpool.kube.credentials import ExecCredentialStatus, ExecPluginTransport
from podpool.kube.kubeconfig import KubeconfigCluster, KubeconfigUser, ResolvedContext, resolve_context
from podpool.runtime.clock import Clock, SystemClock
from podpool.runtime.http_client import Headers, HttpTransport

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The mounted service account of a Pod."""
CLOCK = SystemClock()

Connection = HttpTransport | ExecPluginTransport


def connect(environ: Mapping[str, str] = os.environ, *, context: str | None = None) -> Connection:
    """Return a transport, as kubectl finds it: `KUBECONFIG`, the service account of the Pod, `~/.kube/config`."""
    files = _files(environ, context)
    return from_kubeconfig(*files, context=context, environ=environ) if files else in_cluster(environ)


def default_namespace(*paths: Path, environ: Mapping[str, str] = os.environ, context: str | None = None) -> str:
    """Return the namespace of requests without one: that of the context, of the Pod, or `default`."""
    files = paths or _files(environ, context)
    if files:
        return resolve_context(files, context=context).namespace or "default"
    own = SERVICE_ACCOUNT_DIR / "namespace"
    return (own.read_text().strip() if own.exists() else "") or "default"


def _files(environ: Mapping[str, str], context: str | None) -> Sequence[Path]:
    """Return the kubeconfigs; none inside a Pod, which has a service account."""
    if environ.get("KUBECONFIG"):
        return [Path(each) for each in environ["KUBECONFIG"].split(os.pathsep) if each]
    if environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return []
    return [Path.home() / ".kube" / "config"]


def in_cluster(environ: Mapping[str, str] = os.environ, *, account: Path = SERVICE_ACCOUNT_DIR) -> HttpTransport:
    """Return a transport with the service account of this Pod."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return HttpTransport(base, tls=tls, headers=token_file_headers(account / "token"), proxy=proxy_for(base, environ))


def from_kubeconfig(
    *paths: Path, context: str | None = None, environ: Mapping[str, str] = os.environ, clock: Clock = CLOCK
) -> Connection:
    """Return a transport for a context of kubeconfigs, by default the current one."""
    resolved = resolve_context(paths, context=context)
    if resolved.user.exec is None:
        return _transport(resolved, resolved.user, _headers(resolved.user), environ)

    def open_transport(credential: ExecCredentialStatus, headers: Headers) -> HttpTransport:
        certificate, key = _inline(credential.client_certificate_data), _inline(credential.client_key_data)
        user = KubeconfigUser(client_certificate_data=certificate, client_key_data=key)
        return _transport(resolved, user, headers, environ)

    return ExecPluginTransport(resolved.user.exec, resolved.cluster, open_transport, clock=clock, environ=environ)


def token_file_headers(path: Path) -> Headers:
    """Return the Authorization header with the token of a file, read again when the file changes."""
    read: tuple[tuple[int, int], str] | None = None

    def headers() -> Mapping[str, str]:
        nonlocal read
        found = path.stat()
        changed = (found.st_mtime_ns, found.st_ino)
        if read is None or read[0] != changed:
            read = (changed, path.read_text().strip())
        return {"authorization": f"Bearer {read[1]}"}

    return headers


def _transport(
    resolved: ResolvedContext, user: KubeconfigUser, headers: Headers, environ: Mapping[str, str]
) -> HttpTransport:
    cluster = resolved.cluster
    return HttpTransport(
        cluster.server,
        tls=_tls(cluster, user) if cluster.server.startswith("https:") else None,
        headers=headers,
        proxy=cluster.proxy_url or proxy_for(cluster.server, environ),
        server_name=cluster.tls_server_name or None,
    )


def _headers(user: KubeconfigUser) -> Headers:
    if user.token_file:
        return token_file_headers(Path(user.token_file))
    return lambda: {"authorization": f"Bearer {user.token}"} if user.token else {}


def _tls(cluster: KubeconfigCluster, user: KubeconfigUser) -> ssl.SSLContext:
    try:
        data = base64.b64decode(cluster.certificate_authority_data).decode()
        tls = ssl.create_default_context(cafile=cluster.certificate_authority or None, cadata=data or None)
        _load_certificate(tls, user)
    except (OSError, ValueError) as error:  # missing file, bad base64, bad certificate, key of another certificate
        named = cluster.certificate_authority, user.client_certificate, user.client_key
        reason = f"cannot use its certificates ({error})"
        raise InvalidInput("kubeconfig", " ".join(filter(None, named)) or cluster.server, reason) from None
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _load_certificate(tls: ssl.SSLContext, user: KubeconfigUser) -> None:
    if user.client_certificate:
        tls.load_cert_chain(user.client_certificate, user.client_key or None)
    elif user.client_certificate_data:
        with tempfile.TemporaryDirectory() as directory:  # ssl reads only files
            certificate, key = Path(directory, "certificate"), Path(directory, "key")
            certificate.write_bytes(base64.b64decode(user.client_certificate_data))
            key.write_bytes(base64.b64decode(user.client_key_data))
            tls.load_cert_chain(certificate, key)


def _inline(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def proxy_for(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the HTTP proxy for a server, or None.

    `HTTPS_PROXY` or `HTTP_PROXY` by the server's scheme, unless `NO_PROXY` lists the server: domains with their
    subdomains, addresses, CIDRs, each with an optional port, or `*`. Upper or lower case. Loopback never uses a proxy.
    """
    parts = urlsplit(server)
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    host = (parts.hostname or "").rstrip(".")
    if not proxy or _is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    exceptions = [each.strip().lower() for each in _variable(environ, "no_proxy").split(",")]
    if any(_matches(host, port, each) for each in exceptions if each):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name, "")


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address else host == "localhost"


def _matches(host: str, port: int, pattern: str) -> bool:
    if pattern == "*":
        return True
    address = _address(host)
    try:
        network = ipaddress.ip_network(pattern.strip("[]"), strict=False)
    except ValueError:
        name, colon, wanted = pattern.rpartition(":")
        if colon and wanted.isdecimal():
            return int(wanted) == port and _matches(host, port, name)
        name = pattern.removeprefix("*").lstrip(".")
        return not address and (host.endswith(f".{name}") or (host == name and pattern == name))
    return address is not None and address in network


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
