"""Pods as an API server sends them for a Deployment, including managed fields."""

from __future__ import annotations

import msgspec

_OWNED: dict[str, object] = {
    "f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}}}
}
_PORTS = [
    {"containerPort": port, "name": name, "protocol": "TCP"} for port, name in ((8080, "http"), (9090, "metrics"))
]
_PROBE = {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
_TOKEN = {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": True}
_AT = "2026-03-01T10:00:00Z"


def pod(number: int, *, version: int = 1) -> dict[str, object]:
    """Return a Pod, about 4 KB of JSON."""
    name = f"checkout-7d9c5b6f4d-{number:05x}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": "checkout-7d9c5b6f4d-",
            "namespace": f"team-{number % 50}",
            "uid": f"0b5e2f6a-6f0e-4c55-9d0a-{number:012x}",
            "resourceVersion": str(1_000_000 + version),
            "creationTimestamp": _AT,
            "labels": {
                "app": "checkout",
                "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "7d9c5b6f4d",
                "team": f"team-{number % 50}",
            },
            "annotations": {"prometheus.io/scrape": "true", "example.com/config-hash": f"{number:064x}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "checkout-7d9c5b6f4d",
                    "uid": "6c1f5a8e-2b43-4a57-8b0e-3a4fd2f1c0de",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": _AT,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": _OWNED,
                }
                for manager in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "nodeName": f"node-{number % 5000}",
            "serviceAccountName": "checkout",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": True,
            "containers": [_container("checkout"), _container("sidecar")],
            "tolerations": [
                {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists"}
                for key in ("not-ready", "unreachable")
            ],
            "volumes": [
                {"name": "config", "configMap": {"name": "checkout", "defaultMode": 420}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            ],
        },
        "status": {
            "phase": "Running",
            "hostIP": "10.1.0.4",
            "podIP": f"10.64.{number // 250 % 250}.{number % 250}",
            "podIPs": [{"ip": f"10.64.{number // 250 % 250}.{number % 250}"}],
            "qosClass": "Burstable",
            "startTime": _AT,
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _AT}
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [_status(number, "checkout"), _status(number, "sidecar")],
        },
    }


def line(number: int, *, version: int) -> bytes:
    """Return a MODIFIED watch event of a Pod."""
    return msgspec.json.encode({"type": "MODIFIED", "object": pod(number, version=version)}) + b"\n"


def _container(name: str) -> dict[str, object]:
    return {
        "name": name,
        "image": f"registry.example/shop/{name}:1.42.0",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(8)],
        "ports": _PORTS,
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "livenessProbe": _PROBE,
        "readinessProbe": _PROBE,
        "volumeMounts": [{"mountPath": "/etc/config", "name": "config"}, _TOKEN],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def _status(number: int, name: str) -> dict[str, object]:
    return {
        "name": name,
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": f"registry.example/shop/{name}:1.42.0",
        "imageID": f"registry.example/shop/{name}@sha256:{7:064x}",
        "containerID": f"containerd://{number:064x}",
        "state": {"running": {"startedAt": _AT}},
        "lastState": {},
    }
