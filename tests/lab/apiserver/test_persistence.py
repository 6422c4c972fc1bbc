"""A store in a file: answered writes survive the process."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.api.crds import crd_manifests
from podpool.kube.client import KubeClient
from podpool.kube.client_config import from_kubeconfig
from podpool.lab.apiserver.persistence import StoreFile, StoreFileError
from podpool.lab.apiserver.registry import CRDS
from podpool.lab.apiserver.status_errors import StatusError
from podpool.lab.apiserver.store import ObjectStore
from tests.kube.api_servers import FixedClock
from tests.kube.event_loops import run_in_loop
from tests.lab.apiserver.processes import ApiServerProcess
from tests.lab.apiserver.test_malformed_objects import without_scope


def open_store(path: Path, failed: Callable[[StoreFileError], None] = lambda _: None) -> tuple[ObjectStore, StoreFile]:
    store = ObjectStore(clock=FixedClock(), rng=random.Random(1))  # noqa: S311  seeded
    file = StoreFile(path, on_failure=failed)
    file.attach(store)
    return store, file


def test_a_reopened_store_has_its_objects_resources_and_versions(tmp_path: Path) -> None:
    store, file = open_store(tmp_path / "api_server.db")
    for manifest in crd_manifests():
        store.create(CRDS, manifest)
    nodes = store.registry.find("", "v1", "nodes")
    for name in ("a", "b", "c"):
        store.create(nodes, {"metadata": {"name": name}})
    store.update(nodes, "a", lambda old: {**old, "spec": {"unschedulable": True}})
    store.delete(nodes, "b")
    before = store.snapshot()
    file.close()
    again, file = open_store(tmp_path / "api_server.db")
    assert before == again.snapshot()
    assert NODE_NETWORK_CONFIGS.kind == again.registry.find("acn.azure.com", "v1alpha", "nodenetworkconfigs").kind
    assert str(before.revision + 1) == again.create(nodes, {"metadata": {"name": "d"}})["metadata"]["resourceVersion"]
    file.close()


def test_deleting_a_crd_deletes_its_objects_from_the_file(tmp_path: Path) -> None:
    store, file = open_store(tmp_path / "api_server.db")
    for manifest in crd_manifests():
        store.create(CRDS, manifest)
    wait_until_served = store.registry.find("acn.azure.com", "v1alpha", "nodenetworkconfigs")
    body = {"apiVersion": wait_until_served.api_version, "kind": wait_until_served.kind, "metadata": {"name": "n"}}
    store.create(wait_until_served, body, namespace="default")
    store.delete(CRDS, "nodenetworkconfigs.acn.azure.com")
    file.close()
    again, file = open_store(tmp_path / "api_server.db")
    assert store.snapshot() == again.snapshot()
    file.close()


def test_a_file_that_is_not_a_database_is_rejected_by_name(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("not a database, and longer than the header of one")
    with pytest.raises(StoreFileError, match="cannot store the cluster's objects in .*text"):
        open_store(path)


def test_two_servers_do_not_share_a_file(tmp_path: Path) -> None:
    _, file = open_store(tmp_path / "api_server.db")
    with pytest.raises(StoreFileError, match="locked"):
        open_store(tmp_path / "api_server.db")
    file.close()


def test_a_write_that_cannot_be_stored_is_not_answered(tmp_path: Path) -> None:
    failures: list[StoreFileError] = []
    store, file = open_store(tmp_path / "api_server.db", failures.append)
    file.close()
    with pytest.raises(StoreFileError):
        store.create(store.registry.find("", "v1", "nodes"), {"metadata": {"name": "a"}})
    assert 1 == len(failures)


def test_a_rejected_crd_does_not_change_the_file(tmp_path: Path) -> None:
    store, file = open_store(tmp_path / "api_server.db")
    with pytest.raises(StatusError, match="spec.scope: Required value"):
        store.create(CRDS, {"metadata": {"name": "lamps.x.dev"}, "spec": without_scope()})
    store.create(store.registry.find("", "v1", "nodes"), {"metadata": {"name": "a"}})
    file.close()
    again, file = open_store(tmp_path / "api_server.db")
    assert store.snapshot() == again.snapshot()
    file.close()


def test_a_failed_write_is_rolled_back(tmp_path: Path) -> None:
    failures: list[StoreFileError] = []
    store, file = open_store(tmp_path / "api_server.db", failures.append)
    before = store.snapshot()
    nodes = store.registry.find("", "v1", "nodes")
    with pytest.raises(StoreFileError):
        store.create(nodes, {"metadata": {"name": "a"}, "spec": {"odd": object()}})
    assert 1 == len(failures)
    file.close()
    again, file = open_store(tmp_path / "api_server.db")
    assert before == again.snapshot()
    file.close()


@pytest.mark.integration
@run_in_loop
async def test_a_killed_server_loses_no_answered_write(tmp_path: Path) -> None:
    api_server = ApiServerProcess(tmp_path, "--file", str(tmp_path / "api_server.db"))
    api_server.start()
    transport = from_kubeconfig(api_server.kubeconfig)
    client = KubeClient(transport, timeout=5)
    answered: dict[str, str] = {}
    begun = asyncio.Event()

    async def writing() -> None:
        for number in range(100_000):
            created = await client.create(NODES, {"metadata": {"name": f"n-{number}"}})
            answered[created.metadata.name] = created.metadata.resource_version
            if number == 50:
                begun.set()

    try:
        task = asyncio.ensure_future(writing())
        await begun.wait()
        api_server.process.kill()
        await asyncio.wait([task])
        task.exception()
        api_server.start()
        listed = await client.list(NODES)
        kept = {each.metadata.name: each.metadata.resource_version for each in listed.items}
        assert answered.items() <= kept.items()
        assert len(kept) <= len(answered) + 1, "at most the write in flight"
        assert int(listed.resource_version) >= max(map(int, kept.values()))
    finally:
        await transport.close()
        api_server.process.stop()
