"""How clients connect: a self-signed certificate, and a kubeconfig that trusts it."""

import base64
import subprocess
from pathlib import Path

import msgspec

from podpool.core.errors import PodpoolError

NAME = "podpool-apiserver"
"""The cluster, user and context in the kubeconfig, and the start of the certificate's file name."""
_OPENSSL = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class CertificateError(PodpoolError):
    """A certificate cannot be created."""

    def __init__(self, reason: str) -> None:
        other = "give one with --tls-cert and --tls-key, or serve plain HTTP on loopback with --tls=false"
        super().__init__(f"cannot create a certificate ({reason}): install openssl, or {other}")


def ensure_certificate(directory: Path, host: str) -> tuple[Path, Path]:
    """Return the certificate of an address and its key, created if they do not exist."""
    certificate, key = directory / f"{NAME}-{host}.crt", directory / f"{NAME}-{host}.key"
    if certificate.exists() and key.exists():
        return certificate, key
    directory.mkdir(parents=True, exist_ok=True)
    names = f"subjectAltName=DNS:localhost,{'IP' if host[-1:].isdigit() or ':' in host else 'DNS'}:{host}"
    command = [*_OPENSSL, "-days", "825", "-subj", f"/CN={NAME}", "-addext", names]
    key.touch(mode=0o600)
    try:
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)  # noqa: S603  fixed arguments
    except FileNotFoundError:
        raise CertificateError("openssl is not installed") from None
    except subprocess.CalledProcessError as error:
        raise CertificateError(error.stderr.decode(errors="replace").strip()) from None
    return certificate, key


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str


class _Kubeconfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The fields that show who wrote a kubeconfig."""

    current_context: str
    clusters: list[_NamedCluster]


def is_generated(text: bytes) -> bool:
    """Return whether a file is empty, or a kubeconfig written here with no other cluster in it."""
    if not text:
        return True
    try:
        found = msgspec.yaml.decode(text, type=_Kubeconfig)
    except msgspec.DecodeError:
        return False
    return found.current_context == NAME and [each.name for each in found.clusters] == [NAME]


def kubeconfig(server: str, certificate: Path | None = None) -> str:
    """Return a kubeconfig for the server that trusts its certificate."""
    cluster = {"server": server}
    if certificate:
        cluster["certificate-authority-data"] = base64.b64encode(certificate.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": NAME}}],  # not checked, but without one kubectl asks the user
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    return msgspec.yaml.encode(config).decode()
