"""How a client gets in: a certificate that the server makes for itself, and a kubeconfig that trusts it."""

import base64
import subprocess
from pathlib import Path

import msgspec

from podpool.core.errors import PodpoolError

NAME = "pocket"
_OPENSSL = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class NoCertificate(PodpoolError):
    """A certificate cannot be made."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no certificate can be made ({reason}): install openssl, "
            "or give one with --tls-cert and --tls-key, or serve plain HTTP on loopback with --tls off"
        )


def own_certificate(home: Path, host: str) -> tuple[Path, Path]:
    """Make a certificate for an address, with its key, unless it was made before."""
    certificate, key = home / f"{NAME}-{host}.crt", home / f"{NAME}-{host}.key"
    if certificate.exists() and key.exists():
        return certificate, key
    home.mkdir(parents=True, exist_ok=True)
    names = f"subjectAltName=DNS:localhost,{'IP' if host[-1:].isdigit() or ':' in host else 'DNS'}:{host}"
    words = [*_OPENSSL, "-days", "825", "-subj", f"/CN={NAME}", "-addext", names]
    key.touch(mode=0o600)
    try:
        subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)  # noqa: S603  fixed words
    except FileNotFoundError:
        raise NoCertificate("there is no openssl") from None
    except subprocess.CalledProcessError as error:
        raise NoCertificate(error.stderr.decode(errors="replace").strip()) from None
    return certificate, key


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Kubeconfig(msgspec.Struct, frozen=True, rename="kebab"):
    """What tells whose a kubeconfig is."""

    current_context: str
    clusters: list[_Named]


def is_own(text: bytes) -> bool:
    """Whether a file is a kubeconfig that was written here, with no other cluster in it, or is empty."""
    if not text:
        return True
    try:
        found = msgspec.yaml.decode(text, type=_Kubeconfig)
    except msgspec.DecodeError:
        return False
    return found.current_context == NAME and [each.name for each in found.clusters] == [NAME]


def kubeconfig(server: str, certificate: Path | None = None) -> str:
    """Write what kubectl needs to find the server and to believe it."""
    cluster = {"server": server}
    if certificate:
        cluster["certificate-authority-data"] = base64.b64encode(certificate.read_bytes()).decode()
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": NAME}}],  # nobody asks for it, but without one kubectl asks the user
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    return msgspec.yaml.encode(told).decode()
