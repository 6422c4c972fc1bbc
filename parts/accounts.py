"""Service accounts with real tokens, issued by the API server as for Pods.

A token bound to a node carries the name and UID of the node; the API server rejects it once the node is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parts.api import ApiError
from parts.polling import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parts.api import Api

LIFETIME = 24 * 60 * 60
"""Seconds; longer than any test session."""


class Accounts:
    """Creates service accounts, nodes and roles that do not exist yet."""

    def __init__(self, admin: Api) -> None:
        self.admin = admin

    def token(
        self,
        name: str,
        *,
        namespace: str = "default",
        node: str | None = None,
        pod: str | None = None,
        rules: Sequence[dict[str, Any]] = (),
    ) -> str:
        """Return a token for a service account, optionally bound to a node or to a Pod on it, with own rules."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.make(accounts, {"metadata": {"name": name}})
        spec: dict[str, Any] = {"expirationSeconds": LIFETIME}
        if node:
            bound = self.make("/api/v1/nodes", {"metadata": {"name": node}})
            if pod:
                running = {
                    "serviceAccountName": name,
                    "nodeName": node,
                    "containers": [{"name": "main", "image": "none"}],
                }
                pods = f"/api/v1/namespaces/{namespace}/pods"
                bound = self.make(pods, {"metadata": {"name": pod}, "spec": running})
            meta = bound["metadata"]
            kind = "Pod" if pod else "Node"
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
        answer = self.admin.post(
            f"{accounts}/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        token: str = answer["status"]["token"]
        if rules:
            self.allow(name, namespace, rules)
            until(lambda: self.knows_rules(token, namespace, rules), f"the API server knows the rules of {name}")
        return token

    def allow(self, name: str, namespace: str, rules: Sequence[dict[str, Any]]) -> None:
        """Set the cluster-wide rules of a service account."""
        role = f"bench:{namespace}:{name}"
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        self.make(f"{rbac}/clusterroles", {"metadata": {"name": role}})
        self.admin.patch(f"{rbac}/clusterroles/{role}", {"rules": list(rules)})
        self.make(
            f"{rbac}/clusterrolebindings",
            {
                "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        )

    def knows_rules(self, token: str, namespace: str, rules: Sequence[dict[str, Any]]) -> bool:
        """Return whether the rules are in force: the API server learns of them by a watch."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        answer = replace(self.admin, token=token).post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
        known = answer["status"]["resourceRules"] + answer["status"]["nonResourceRules"]
        return all(rule in known for rule in rules)

    def make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object, or read the existing one."""
        try:
            return self.admin.post(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return self.admin.get(f"{path}/{body['metadata']['name']}")
