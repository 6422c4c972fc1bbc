"""Made-up service accounts with real tokens: asked from the API server, as a kubelet asks them for its Pods.

A token that is bound to a node carries the node's name and uid: the API server tells it to whoever asks who is there,
and refuses the token once the node is gone.
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
    """Makes service accounts, nodes and rights, each only when it is not there yet."""

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
        """A token for a service account, bound to a node if one is named, or to a Pod on it; with rules of its own."""
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
        """Give a service account rights in the whole cluster, in place of those that it had from here."""
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
        """Whether the rules are in force: the API server learns of them by a watch of its own, a moment later."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        }
        answer = replace(self.admin, token=token).post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
        known = answer["status"]["resourceRules"] + answer["status"]["nonResourceRules"]
        return all(rule in known for rule in rules)

    def make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object, or read the one that is there."""
        try:
            return self.admin.post(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return self.admin.get(f"{path}/{body['metadata']['name']}")
