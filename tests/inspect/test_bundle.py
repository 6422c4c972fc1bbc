"""A support bundle has what helps, no secrets, and bounds, whatever the servers do."""

from __future__ import annotations

import asyncio
import io
import tarfile
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from podpool.inspect.bundle import archive as archives
from podpool.inspect.bundle.archive import BundleArchive, BundleManifest, safe_name
from podpool.inspect.bundle.collect import MAX_LOG_BYTES, BundleCollector, BundleOptions
from podpool.inspect.bundle.redaction import REMOVED, redacted_object, redacted_pod, redacted_text
from podpool.kube.client import KubeClient
from podpool.ledger.client import LedgerClient, Timeouts
from podpool.runtime.transport import Response, Unreachable

if TYPE_CHECKING:
    from podpool.runtime.transport import Request

SECRET = "hunter2hunter2"  # noqa: S105  planted
BODIES = {
    "empty": b"",
    "page": b"<html>",
    "deep": b"[" * 100_000,
    "number": b'{"items": 1}',
    "binary": b"\xff",
    "list": b"[]",
}
TOKEN = f"podpool_{'0' * 12}_{'a' * 64}"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


def read(content: bytes) -> dict[str, bytes]:
    """Return the files of an archive, without their common directory."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        found = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar.getmembers()}
        return {name: file.read() for name, file in found.items() if file}


class TestRedaction:
    @pytest.mark.parametrize(
        "line",
        [
            f"token={SECRET}",
            f'"password": "{SECRET}"',
            f"authorization: Bearer {SECRET}",
            f"https://user:{SECRET}@ledger/",
            f"GET /x?sig={SECRET}&a=b",
            f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
            f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        ],
    )
    def test_secrets_in_texts(self, line: str) -> None:
        assert SECRET not in redacted_text(f"before {line} after")
        assert REMOVED in redacted_text(line)

    def test_tokens_in_texts(self) -> None:
        assert f"a {REMOVED} b {REMOVED} c" == redacted_text(f"a {TOKEN} b {JWT} c")

    @pytest.mark.parametrize(
        "line",
        ["grants released node=a count=3", "--ledger-token-file=/etc/token", "tokens: 3", "10.0.0.4 is free"],
    )
    def test_other_texts_stay(self, line: str) -> None:
        assert line == redacted_text(line)

    def test_a_pod_has_only_what_matters(self) -> None:
        pod = {
            "metadata": {
                "name": "web",
                "annotations": {"vault/secret": SECRET, "k8s.v1.cni.cncf.io/networks": "storage"},
                "managedFields": [{"x": SECRET}],
            },
            "spec": {
                "nodeName": "a",
                "containers": [{"env": [{"name": "PASSWORD", "value": SECRET}], "command": [SECRET]}],
                "volumes": [{"secret": {"secretName": SECRET}}],
            },
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 1, "more": SECRET}]},
        }
        shown = redacted_pod(pod)
        assert SECRET.encode() not in msgspec.json.encode(shown)
        assert ("a", "Running") == (shown["spec"]["nodeName"], shown["status"]["phase"])
        assert {"k8s.v1.cni.cncf.io/networks": "storage"} == shown["metadata"]["annotations"]

    def test_objects_lose_secrets_and_foreign_annotations(self) -> None:
        notes = {"podpool.io/agent": "{}", "node-restriction.kubernetes.io/x": "1", "kubectl/last-applied": SECRET}
        config = f'{{"type": "macvlan", "auth": {{"apiKey": "{SECRET}"}}, "ipam": {{"type": "whereabouts"}}}}'
        shown = redacted_object({"metadata": {"annotations": notes}, "spec": {"config": config, "token": SECRET}})
        assert SECRET not in str(shown)
        assert {"podpool.io/agent": "{}"} == shown["metadata"]["annotations"]
        assert '"type":"whereabouts"' in shown["spec"]["config"]
        assert f"{REMOVED}: it is not JSON" == redacted_object({"spec": {"config": f"{{{SECRET}"}})["spec"]["config"]

    @pytest.mark.parametrize("odd", [{}, {"metadata": 1, "spec": []}, {"status": {"containerStatuses": 3}}])
    def test_objects_of_any_shape(self, odd: dict[str, Any]) -> None:
        assert isinstance(redacted_object(odd), dict)
        assert isinstance(redacted_pod(odd), dict)

    def test_what_is_nested_too_deep_is_removed(self) -> None:
        deep: Any = SECRET
        for _ in range(500):
            deep = [deep]
        assert SECRET not in str(redacted_object({"spec": deep}))


class TestArchive:
    def test_files_and_the_whole_are_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(archives, "MAX_FILE_BYTES", 100)
        made = BundleArchive("root", time=0, max_bytes=150)
        for name in ("a", "b", "c"):
            made.add(name, b"x" * 1000)
        files = read(made.finish(_manifest(made)))
        assert {"a": 100, "b": 50} == {name: len(files[name]) for name in ("a", "b")}
        entries = [(each.path, each.bytes, each.truncated, bool(each.error)) for each in made.entries]
        assert [("a", 100, True, False), ("b", 50, True, False), ("c", 0, False, True)] == entries
        assert b'"truncated": true' in files["manifest.json"]

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/x", "..", "", "a/b", "a\x00b\n", "." * 300, "x" * 5000])
    def test_names_from_servers_stay_below_the_directory(self, name: str) -> None:
        safe = safe_name(name)
        assert safe
        assert len(safe) <= archives.MAX_NAME
        assert not safe.startswith(".")
        assert "/" not in safe


def _manifest(made: BundleArchive) -> BundleManifest:
    return BundleManifest(podpool="1", created="now", server="s", since_seconds=1, entries=tuple(made.entries))


POD = {
    "metadata": {
        "name": "podpool-agent-x",
        "namespace": "kube-system",
        "labels": {"app.kubernetes.io/part-of": "podpool", "app.kubernetes.io/component": "agent"},
    },
    "spec": {"containers": [{"name": "agent", "env": [{"value": SECRET}]}]},
    "status": {"containerStatuses": [{"name": "agent", "restartCount": 2, "ready": False}]},
}


class _Api:
    """An API server with one Pod of podpool; some paths fail."""

    def __init__(self, *, fail: str = " ", pod: Any = POD) -> None:  # noqa: ANN401  an object
        self.fail = fail
        self.pod = pod
        self.requests: list[str] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(request.path)
        if self.fail in request.path:
            raise Unreachable("https://api", "cut")
        if request.path.endswith("/log"):
            return Response(200, b"line\n" * MAX_LOG_BYTES + f"token={SECRET}".encode())
        if "/proxy/" in request.path:
            return Response(200, b"up 1\n")
        if request.path.endswith("/pods"):
            return Response(200, msgspec.json.encode({"items": [self.pod]}))
        return Response(200, b'{"items": []}')


def collect(api: _Api, ledger: LedgerClient | None = None) -> dict[str, bytes]:
    made = BundleArchive("root", time=0)
    options = BundleOptions(namespace="kube-system", since=60)
    asyncio.run(BundleCollector(made, KubeClient(api), ledger, options).collect({"agent": api}))
    return read(made.finish(_manifest(made)))


def failures(files: dict[str, bytes]) -> dict[str, str]:
    entries = msgspec.json.decode(files["manifest.json"])["entries"]
    return {each["path"]: each["error"] for each in entries if "error" in each}


def test_logs_health_and_objects_are_collected_without_secrets() -> None:
    api = _Api()
    files = collect(api)
    assert {} == failures(files)
    assert {
        "objects/pods.json",
        "objects/nodes.json",
        "objects/nodenetworkconfigs.json",
        "objects/events.json",
        "logs/podpool-agent-x/agent.log",
        "logs/podpool-agent-x/agent.previous.log",
        "health/podpool-agent-x-metrics.txt",
        "local/agent-readyz.txt",
    } <= set(files)
    assert len(files["logs/podpool-agent-x/agent.log"]) <= MAX_LOG_BYTES
    assert not [each for each in api.requests if "secrets" in each or "configmaps" in each]
    assert not [name for name, content in files.items() if SECRET.encode() in content]


def test_what_fails_is_recorded_and_the_rest_collected() -> None:
    files = collect(_Api(fail="/log"))
    assert {"logs/podpool-agent-x/agent.log", "logs/podpool-agent-x/agent.previous.log"} <= set(failures(files))
    assert "objects/pods.json" in files


def test_a_server_that_does_not_answer_is_asked_twice() -> None:
    api = _Api(fail="/")
    files = collect(api, LedgerClient(_Api(fail="/"), timeouts=Timeouts(attempts=1)))
    assert ["manifest.json"] == list(files)
    assert 5 == len(api.requests), api.requests  # twice, the cluster ID for the ledger, and two on this machine
    errors = failures(files)
    assert "the API server at https://api cannot be reached: cut" == errors["versions.json"]
    assert "not read: the API server does not answer" == errors["objects/events.json"]


@pytest.mark.parametrize("pod", [{}, {"metadata": {"labels": 1}}, {"metadata": {"name": "../x"}, "spec": 1}])
def test_pods_of_any_shape_are_collected(pod: dict[str, Any]) -> None:
    assert {} == failures(collect(_Api(pod=pod)))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_server_that_is_no_api_server_leaves_a_manifest(body: bytes) -> None:
    class Other:
        async def send(self, _request: Request) -> Response:
            return Response(200, body)

    made = BundleArchive("root", time=0)
    options = BundleOptions(namespace="kube-system", since=60)
    asyncio.run(BundleCollector(made, KubeClient(Other()), LedgerClient(Other()), options).collect({}))
    assert "manifest.json" in read(made.finish(_manifest(made)))
