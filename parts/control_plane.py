"""A real Kubernetes control plane: etcd and kube-apiserver on loopback, with TLS, RBAC, tokens and audit log.

There is no controller manager: no default service accounts and no garbage collection. etcd does not sync to disk,
because tests end it by signal, never by power loss.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from typing import TYPE_CHECKING, Any

import trustme

from parts.accounts import Accounts
from parts.api import Api, ApiError
from parts.audit import POLICY, AuditLog
from parts.daemon import Daemon
from parts.loopback import answers, free_port
from parts.recipes import program

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "admin"
NAMESPACES = ("default", "kube-system")


class KubectlFailed(Exception):
    """kubectl failed; the message is its error output."""


class ControlPlane:
    """Fixture: `control_plane`. `etcd` and `apiserver` can be stopped, paused, killed and started, one call each."""

    def __init__(self, home: Path, *, service_accounts: bool = False) -> None:
        self.home = home
        self.port = free_port()
        self.ca = home / "ca.pem"
        self.audit = AuditLog(home / "audit.log")
        self.admin = Api(port=self.port, ca=self.ca, token=secrets.token_hex(16))
        self.accounts = Accounts(self.admin)
        self.write_secrets()
        self.kubeconfig = self.kubeconfig_for(self.admin.token, name=ADMIN)
        self.etcd_port = free_port()
        self.etcd = Daemon(
            etcd_argv(home, self.etcd_port, peer_port=free_port()),
            log=home / "etcd.log",
            ready=lambda: answers(self.etcd_port, "/readyz"),
        )
        self.apiserver = Daemon(
            apiserver_argv(home, self.port, etcd_port=self.etcd_port, service_accounts=service_accounts),
            log=home / "kube-apiserver.log",
            ready=self.ready,
        )

    def start(self) -> None:
        """Start both, and wait until requests are served and the first namespaces exist."""
        self.etcd.start()
        self.apiserver.start()

    def stop(self) -> None:
        """Stop both, the API server first: without etcd it would wait until its timeout."""
        self.apiserver.kill()
        self.etcd.kill()

    def settle(self) -> None:
        """Make both serve again, whatever a test did to them."""
        self.etcd.settle()
        self.apiserver.settle()

    def ready(self) -> bool:
        """Return whether the API server is ready and the namespaces exist."""
        try:
            self.admin.get("/readyz")
            for namespace in NAMESPACES:
                self.admin.get(f"/api/v1/namespaces/{namespace}")
        except (ApiError, OSError):
            return False
        return True

    def api(self, token: str) -> Api:
        """Return a client of the API server with a token."""
        return Api(port=self.port, ca=self.ca, token=token)

    def kubeconfig_for(self, token: str, *, name: str) -> Path:
        """Write a kubeconfig with a token. The token is in its own file, which a later call renews."""
        path, kept = self.home / f"{name}.kubeconfig", self.home / f"{name}.token"
        beside = kept.with_suffix(".new")
        beside.write_text(token)
        beside.rename(kept)
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.ca)}
        path.write_text(
            json.dumps(  # which is YAML too
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "bench", "cluster": cluster}],
                    "users": [{"name": name, "user": {"tokenFile": str(kept)}}],
                    "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": name}}],
                    "current-context": "bench",
                }
            )
        )
        return path

    def kubectl(self, *argv: str, manifest: dict[str, Any] | str = "") -> str:
        """Run kubectl as admin; `manifest` is its standard input, for `-f -`. Raises `KubectlFailed`."""
        done = subprocess.run(
            [program("kubectl"), "--kubeconfig", self.kubeconfig, "--cache-dir", self.home / "kubectl", *argv],
            check=False,
            capture_output=True,
            text=True,
            input=manifest if isinstance(manifest, str) else json.dumps(manifest),
            env=os.environ | {"HOME": str(self.home)},
        )
        if done.returncode:
            raise KubectlFailed(done.stderr)
        return done.stdout

    def write_secrets(self) -> None:
        """Write the certificates, the key that signs tokens, the admin's token and the audit policy."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        server = authority.issue_cert("127.0.0.1", "localhost")
        server.private_key_pem.write_to_path(self.home / "server.key")
        server.cert_chain_pems[0].write_to_path(self.home / "server.crt")
        authority.issue_cert("tokens.invalid").private_key_pem.write_to_path(self.home / "tokens.key")
        (self.home / "tokens.csv").write_text(f"{self.admin.token},{ADMIN},{ADMIN},system:masters\n")
        (self.home / "audit.json").write_text(json.dumps(POLICY))


def etcd_argv(home: Path, port: int, *, peer_port: int) -> list[str | Path]:
    """Return the command line of etcd."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        *(program("etcd"), "--unsafe-no-fsync", "--log-level=warn", f"--data-dir={home / 'etcd'}"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"),
        *(f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
    ]


def apiserver_argv(home: Path, port: int, *, etcd_port: int, service_accounts: bool = False) -> list[str | Path]:
    """Return the command line of the API server; with `service_accounts` Pods get tokens, which needs controllers."""
    return [
        *(program("kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd_port}"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}", "--advertise-address=127.0.0.1"),
        "--endpoint-reconciler-type=none",  # a loopback address would be rejected
        *(f"--cert-dir={home}", f"--tls-cert-file={home / 'server.crt'}"),
        f"--tls-private-key-file={home / 'server.key'}",
        *("--authorization-mode=Node,RBAC", f"--token-auth-file={home / 'tokens.csv'}"),
        *(
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={home / 'tokens.key'}",
        ),
        f"--service-account-signing-key-file={home / 'tokens.key'}",
        *([] if service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
        "--allow-privileged=true",
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as some distributions have it
        "--shutdown-watch-termination-grace-period=2s",  # otherwise each open watch delays the shutdown by a minute
        "--service-cluster-ip-range=10.255.0.0/24",
        *(f"--audit-policy-file={home / 'audit.json'}", f"--audit-log-path={home / 'audit.log'}"),
        *("--audit-log-mode=blocking", "--audit-log-maxsize=10000"),  # in MB: a mark must not be rotated away
    ]
