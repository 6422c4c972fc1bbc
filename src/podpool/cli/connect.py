"""Connections of a command to the API server and the ledger, and files that its options name."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from podpool.cli.listen import reload_certificate
from podpool.cli.spec.options import FLAT_FILE, NO_LEDGER
from podpool.core.errors import InvalidInput
from podpool.kube import client_config
from podpool.kube.client import KubeClient
from podpool.ledger.client import LedgerClient, Timeouts
from podpool.runtime import entropy
from podpool.runtime.http_client import HttpTransport
from podpool.whereabouts.cni_json import read_object, read_struct
from podpool.whereabouts.config_merge import RawIpamConfig

_TOKEN = re.compile("podpool_[0-9a-f]{12}_[0-9a-f]{64}")


def kube_connection(kubeconfig: str, context: str = "") -> client_config.Connection:
    """Connect to the API server of a kubeconfig, or of the environment if none is named."""
    if kubeconfig:
        return client_config.from_kubeconfig(Path(kubeconfig), context=context or None)
    return client_config.connect(context=context or None)


@asynccontextmanager
async def kube_client(kubeconfig: str) -> AsyncIterator[KubeClient]:
    """Open a client of the API server. Nothing is sent yet."""
    api = kube_connection(kubeconfig)
    try:
        yield KubeClient(api)
    finally:
        await api.close()


@asynccontextmanager
async def ledger_client(
    url: str, *, token_file: str, ca_file: str, server_name: str, client_cert: str, timeouts: Timeouts
) -> AsyncIterator[LedgerClient | None]:
    """Open a client of the ledger; None for a cluster without one. Nothing is sent yet."""
    if url == NO_LEDGER:
        yield None
        return
    tls = _client_tls(ca_file, client_cert)
    transport = HttpTransport(url, tls=tls, server_name=server_name or None)
    renewing = asyncio.ensure_future(reload_certificate(tls, client_cert, "")) if tls and client_cert else None
    try:
        # read for each request: tokens are rotated
        token = partial(read_token, token_file) if token_file else ""
        yield LedgerClient(transport, token=token, timeouts=timeouts, rng=entropy.system_random())
    finally:
        if renewing:
            renewing.cancel()
            await asyncio.wait([renewing])
        await transport.close()


def _client_tls(ca_file: str, client_cert: str) -> ssl.SSLContext | None:
    if not (ca_file or client_cert):
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        reason = f"cannot be loaded ({error.strerror or error}): use a PEM file"
        raise InvalidInput("--ledger-ca-file", ca_file, reason) from None
    try:
        if client_cert:
            context.load_cert_chain(client_cert)
    except OSError as error:
        reason = f"cannot be loaded ({error.strerror or error}): use a PEM file with the certificate and its key"
        raise InvalidInput("--ledger-client-cert", client_cert, reason) from None
    return context


def read_token(path: str, *, option: str = "--ledger-token-file") -> str:
    """Read a token file. It must exist and have a token: without one the ledger answers nothing."""
    make = "write the output of `podpool ledger token create NAME` to it"
    if not path:
        raise InvalidInput(option, path, f"is required: name a file, and {make}")
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read ({getattr(error, 'strerror', 'not text')})"
        raise InvalidInput(option, path, reason) from None
    if not token:
        raise InvalidInput(option, path, f"is empty: {make}")
    return token


def read_new_token(path: str) -> str:
    """Read the file of a token that the ledger accepts without having created it."""
    token = read_token(path, option="--cluster-token-file")
    if not _TOKEN.fullmatch(token):
        reason = "has no token of the form podpool_ID_SECRET, ID and SECRET of 12 and 64 hexadecimal digits"
        raise InvalidInput("--cluster-token-file", path, reason)
    return token


def read_flat_file(path: str) -> bytes | None:
    """Read Whereabouts' flat file and validate it; None if none is named."""
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(FLAT_FILE.flag, path, f"cannot be read: {error.strerror}") from None
    read_struct(read_object(content, what=FLAT_FILE.flag), RawIpamConfig, at=FLAT_FILE.flag)
    return content
