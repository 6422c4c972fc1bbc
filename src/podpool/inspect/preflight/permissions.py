"""Checks of permissions, by access reviews: the API server answers a question, and stores nothing."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from podpool.api.meta import Kind
from podpool.api.rbac import Manifest, rbac_manifests
from podpool.core.errors import PodpoolError
from podpool.inspect.preflight import objects as o
from podpool.inspect.preflight.report import PreflightFinding, Severity, finding, names, unread
from podpool.inspect.preflight.snapshot import API_SERVER
from podpool.inspect.status import error_text
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound

PARALLEL = 8
"""Reviews at a time: there are about a hundred."""
_RBAC, _CRDS = "rbac.authorization.k8s.io", "apiextensions.k8s.io"


class Permission(msgspec.Struct, frozen=True, order=True):
    """A verb on a resource."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" in {self.namespace}" if self.namespace else "")

    @property
    def attributes(self) -> dict[str, str]:
        """As an access review has it."""
        resource, _, subresource = self.resource.partition("/")
        found = {"namespace": self.namespace, "group": self.group, "resource": resource, "verb": self.verb}
        return {key: each for key, each in {**found, "subresource": subresource, "name": self.name}.items() if each}


INSTALLS = (
    Permission("", _CRDS, "customresourcedefinitions", "create"),
    Permission("", _RBAC, "clusterroles", "create"),
    Permission("", _RBAC, "clusterrolebindings", "create"),
    Permission("", "admissionregistration.k8s.io", "validatingadmissionpolicies", "create"),
    *(Permission("kube-system", "", each, "create") for each in ("serviceaccounts", "configmaps", "services")),
    *(Permission("kube-system", "apps", each, "create") for each in ("daemonsets", "deployments")),
    *(Permission("kube-system", _RBAC, each, "create") for each in ("roles", "rolebindings")),
)
"""What an installation creates."""


async def check_permissions(kube: KubeClient, *, namespace: str) -> list[PreflightFinding]:
    """Check the caller's permissions to install, and those of the service accounts, if they exist."""
    try:
        missing = await _denied(kube, INSTALLS, account="")
    except ApiNotFound:
        return [finding("permissions", Severity.INFO, "caller", "not checked: this API server has no access reviews")]
    except PodpoolError as error:
        return [unread("permissions", "caller", error_text(API_SERVER, error))]
    found = [_caller(missing)]
    for account, permissions in required_permissions().items():
        found.append(await _check_account(kube, namespace, account, permissions))
    return found


def _caller(missing: Sequence[Permission]) -> PreflightFinding:
    if not missing:
        return finding("permissions", Severity.OK, "caller", "may install podpool")
    remedy = "install with the account of a cluster administrator"
    message = f"may not {names(map(str, missing))}: this account cannot install podpool"
    return finding("permissions", Severity.WARNING, "caller", message, remedy)


async def _check_account(
    kube: KubeClient, namespace: str, account: str, permissions: Sequence[Permission]
) -> PreflightFinding:
    what, remedy = f"serviceaccount/{namespace}/{account}", "run `podpool rbac | kubectl apply -f -`"
    try:
        if await kube.find(o.SERVICE_ACCOUNTS, account, namespace=namespace) is None:
            return finding("permissions", Severity.WARNING, what, "does not exist yet", remedy)
        missing = await _denied(kube, permissions, account=f"system:serviceaccount:{namespace}:{account}")
    except PodpoolError as error:
        return unread("permissions", what, error_text(API_SERVER, error))
    if missing:
        return finding("permissions", Severity.ERROR, what, f"may not {names(map(str, missing))}", remedy)
    return finding("permissions", Severity.OK, what, f"has its {len(permissions)} permissions")


async def _denied(kube: KubeClient, permissions: Sequence[Permission], *, account: str) -> list[Permission]:
    """Return the permissions that an account lacks; without an account, that the caller lacks."""
    limit = asyncio.Semaphore(PARALLEL)

    async def allowed(permission: Permission) -> bool:
        async with limit:
            return (await kube.create(*_review(permission, account))).status.allowed

    answers = await asyncio.gather(*map(allowed, permissions), return_exceptions=True)
    for each in answers:
        if isinstance(each, BaseException):
            raise each
    return [each for each, answer in zip(permissions, answers, strict=True) if not answer]


def _review(permission: Permission, account: str) -> tuple[Kind[o.AccessReview], dict[str, Any]]:
    spec: dict[str, Any] = {"resourceAttributes": permission.attributes}
    if not account:
        return o.OWN_ACCESS, {"spec": spec}
    namespace = account.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return o.ACCOUNT_ACCESS, {"spec": {**spec, "user": account, "groups": groups}}


def required_permissions() -> dict[str, list[Permission]]:
    """Return what the service account of each component needs, by the manifests of `podpool rbac`."""
    manifests = rbac_manifests()
    roles = {_role_key(each): each["rules"] for each in manifests if each["kind"] in {"Role", "ClusterRole"}}
    needed: dict[str, set[Permission]] = {}
    for each in manifests:
        if each["kind"].endswith("Binding"):
            kind, namespace = each["roleRef"]["kind"], each["metadata"].get("namespace", "")
            rules = roles[kind, each["roleRef"]["name"], namespace]
            for subject in each["subjects"]:
                needed.setdefault(subject["name"], set()).update(_permissions(rules, namespace))
    return {account: sorted(each) for account, each in needed.items()}


def _role_key(manifest: Manifest) -> tuple[str, str, str]:
    return manifest["kind"], manifest["metadata"]["name"], manifest["metadata"].get("namespace", "")


def _permissions(rules: Sequence[Manifest], namespace: str) -> Iterator[Permission]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield Permission(namespace, group, resource, verb, name)
