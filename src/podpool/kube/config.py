"""Where the API server is, and who we are there: from inside a Pod, or from a kubeconfig.

A token file is read again whenever it has changed: the kubelet renews it long before it ends.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from podpool.core.errors import InvalidInput
from podpool.kube.credentials import ExecCredentialStatus, ExecPluginTransport
from podpool.kube.kubeconfig import KubeconfigCluster, KubeconfigUser, ResolvedContext, resolve_context
from podpool.kube.proxy import proxy_for
from podpool.runtime.clock import Clock, SystemClock
from podpool.runtime.http import Headers, HttpTransport

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a Pod finds its own account."""
CLOCK = SystemClock()

Connection = HttpTransport | ExecPluginTransport


def connect(environ: Mapping[str, str] = os.environ, *, context: str | None = None) -> Connection:
    """Find the API server as kubectl does: `KUBECONFIG`, then the Pod's own account, then `~/.kube/config`."""
    files = _files(environ, context)
    return from_kubeconfig(*files, context=context, environ=environ) if files else in_cluster(environ)


def default_namespace(*paths: Path, environ: Mapping[str, str] = os.environ, context: str | None = None) -> str:
    """Find where kubectl looks for names that come without a namespace: in the context's, or the Pod's own."""
    files = paths or _files(environ, context)
    own = SERVICE_ACCOUNT_DIR / "namespace"
    told = resolve_context(files, context=context).namespace if files else own.read_text().strip() if own.exists() else ""
    return told or "default"


def _files(environ: Mapping[str, str], context: str | None) -> Sequence[Path]:
    """Find the kubeconfigs; none inside a Pod, which has an account of its own."""
    if environ.get("KUBECONFIG"):
        return [Path(each) for each in environ["KUBECONFIG"].split(os.pathsep) if each]
    if environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return []
    return [Path.home() / ".kube" / "config"]


def in_cluster(environ: Mapping[str, str] = os.environ, *, account: Path = SERVICE_ACCOUNT_DIR) -> HttpTransport:
    """Go to the API server with the account of the Pod that we run in."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    base = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return HttpTransport(base, tls=tls, headers=token_file_headers(account / "token"), proxy=proxy_for(base, environ))


def from_kubeconfig(
    *paths: Path, context: str | None = None, environ: Mapping[str, str] = os.environ, clock: Clock = CLOCK
) -> Connection:
    """Go to the API server of a context, the current one unless told."""
    chosen = resolve_context(paths, context=context)
    if chosen.user.exec is None:
        return _road(chosen, chosen.user, _headers(chosen.user), environ)

    def road(credential: ExecCredentialStatus, headers: Headers) -> HttpTransport:
        user = KubeconfigUser(
            client_certificate_data=_inline(credential.client_certificate_data),
            client_key_data=_inline(credential.client_key_data),
        )
        return _road(chosen, user, headers, environ)

    return ExecPluginTransport(chosen.user.exec, chosen.cluster, road, clock=clock, environ=environ)


def token_file_headers(path: Path) -> Headers:
    """Take the token from a file, which is read again when it has changed."""
    read: tuple[tuple[int, int], str] | None = None

    def headers() -> Mapping[str, str]:
        nonlocal read
        found = path.stat()
        changed = (found.st_mtime_ns, found.st_ino)
        if read is None or read[0] != changed:
            read = (changed, path.read_text().strip())
        return {"authorization": f"Bearer {read[1]}"}

    return headers


def _road(chosen: ResolvedContext, user: KubeconfigUser, headers: Headers, environ: Mapping[str, str]) -> HttpTransport:
    cluster = chosen.cluster
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
        tls = ssl.create_default_context(
            cafile=cluster.certificate_authority or None,
            cadata=base64.b64decode(cluster.certificate_authority_data).decode() or None,
        )
        _load_certificate(tls, user)
    except (OSError, ValueError) as error:  # no file, no base64, no certificate, no key that fits
        named = cluster.certificate_authority, user.client_certificate, user.client_key
        reason = f"its certificates cannot be used ({error})"
        raise InvalidInput("kubeconfig", " ".join(filter(None, named)) or cluster.server, reason) from None
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _load_certificate(tls: ssl.SSLContext, user: KubeconfigUser) -> None:
    if user.client_certificate:
        tls.load_cert_chain(user.client_certificate, user.client_key or None)
    elif user.client_certificate_data:
        with tempfile.TemporaryDirectory() as place:  # ssl reads files only
            certificate, key = Path(place, "certificate"), Path(place, "key")
            certificate.write_bytes(base64.b64decode(user.client_certificate_data))
            key.write_bytes(base64.b64decode(user.client_key_data))
            tls.load_cert_chain(certificate, key)


def _inline(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
