"""The controller as a process."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from parts.daemon import dying_with_us
from podpool.api.crds import crd_manifests
from podpool.controller.controller import LEASE
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import CRDS
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime.clock import SystemClock
from podpool.runtime.http_server import serving

PODPOOL = Path(sys.executable).parent / "podpool"
TIMEOUT = 60.0


async def _leads(store: ObjectStore) -> None:
    while not _holder(store):  # noqa: ASYNC110  another process writes it
        await asyncio.sleep(0.05)


def _holder(store: ObjectStore) -> str | None:
    lease = store.objects("coordination.k8s.io", "leases").get(f"kube-system/{LEASE}")
    return str(lease["spec"]["holderIdentity"]) if lease else None


@pytest.mark.integration
def test_sigterm_releases_the_lease_and_exits_with_0(tmp_path: Path) -> None:
    store = ObjectStore(clock=SystemClock(), rng=random.Random(0))  # noqa: S311  only for names
    for manifest in crd_manifests():
        store.create(CRDS, manifest)

    async def scenario() -> tuple[int, str | None]:
        async with serving(ResourceHandler(store), host="127.0.0.1", port=0) as port:
            config = tmp_path / "kubeconfig"
            config.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
            args = ("controller", "run", "--ledger", "none", "--listen", "127.0.0.1:0", "--kubeconfig", config)
            process = await asyncio.create_subprocess_exec(*dying_with_us(), PODPOOL, *args)
            async with asyncio.timeout(TIMEOUT):
                await _leads(store)
                process.terminate()
                return await process.wait(), _holder(store)

    assert (0, "") == asyncio.run(scenario())
