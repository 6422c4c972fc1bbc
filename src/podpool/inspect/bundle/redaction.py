"""What a support bundle leaves out: secrets, and what belongs to other applications. Pure.

Pods are reduced to the fields that podpool depends on, by an allowlist; other objects lose annotations that are not of
podpool or Multus, and every value whose key sounds like a secret. Logs lose what looks like a token or a password.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

REMOVED = "(removed)"
MAX_DEPTH = 64
"""Levels of an object; deeper ones are removed."""
_SECRET_KEY = re.compile(r"token|passw|secret|credential|authori[sz]ation|api-?key|private-?key|cookie", re.IGNORECASE)
_OWN_ANNOTATIONS = re.compile(r"([a-z-]+\.)?podpool\.io/|k8s\.v1\.cni\.cncf\.io/(networks|network-status)$")
_SECRET_TEXT = re.compile(
    r"""(?ix)
    -----BEGIN[^-]*PRIVATE\ KEY-----.*?(-----END[^-]*PRIVATE\ KEY-----|\Z)
    | \bpodpool_[0-9a-f]{8,}_[0-9a-f]{8,}                 # tokens of the ledger
    | \beyJ[\w-]{8,}\.[\w-]+\.[\w-]*                      # JSON web tokens
    | (?<=bearer\ )\S+ | (?<=basic\ )[\w+/=]{8,}
    | (?<=://)[^\s/@:]+:[^\s/@]+(?=@)                      # user and password in a URL
    | (?<=[?&])(token|password|secret|sig|signature)=[^&\s"']+
    | (?<![\w-])(?:[\w-]*(?:token|password|passwd|secret))["']?\s*[=:]\s*["']?[^\s"',}{&]{6,}
    """,
    re.DOTALL,
)
_POD_META = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "ownerReferences", "labels")
_POD_SPEC = ("nodeName", "hostNetwork", "serviceAccountName", "priorityClassName", "tolerations")
_POD_STATUS = ("phase", "reason", "message", "podIPs", "hostIP", "startTime", "conditions")
_CONTAINER = ("name", "ready", "restartCount", "image", "imageID", "state", "lastState")


def redacted_object(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of podpool's kinds, a Node or an Event without what may be secret."""
    plain = dict(_without_secrets(found, depth=0))
    plain["metadata"] = _metadata(plain.get("metadata"))
    return plain


def redacted_pod(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Pod that matter here: neither environment nor volumes, commands or annotations."""
    meta, spec, status = (_mapping(found.get(each)) for each in ("metadata", "spec", "status"))
    kept = _metadata(meta)
    containers = status.get("containerStatuses")
    listed = containers if isinstance(containers, list) else []
    shown = {
        "metadata": {**_picked(meta, _POD_META), **_picked(kept, ("annotations",))},
        "spec": _picked(spec, _POD_SPEC),
        "status": {
            **_picked(status, _POD_STATUS),
            "containerStatuses": [_picked(_mapping(each), _CONTAINER) for each in listed],
        },
    }
    return dict(_without_secrets(shown, depth=0))


def redacted_text(text: str) -> str:
    """Return a log without what looks like a token, a password or a private key."""
    return _SECRET_TEXT.sub(REMOVED, text)


def _metadata(meta: object) -> dict[str, Any]:
    kept = {name: each for name, each in _mapping(meta).items() if name != "managedFields"}
    annotations = _mapping(kept.pop("annotations", None))
    own = {name: each for name, each in annotations.items() if _OWN_ANNOTATIONS.match(name)}
    return {**kept, **({"annotations": own} if own else {})}


def _picked(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _without_secrets(found: Any, *, depth: int) -> Any:  # noqa: ANN401  JSON
    if depth > MAX_DEPTH:
        return REMOVED
    if isinstance(found, Mapping):
        return {name: _value(name, each, depth=depth + 1) for name, each in found.items()}
    if isinstance(found, list):
        return [_without_secrets(each, depth=depth + 1) for each in found]
    return redacted_text(found) if isinstance(found, str) else found


def _value(name: str, found: Any, *, depth: int) -> Any:  # noqa: ANN401  JSON
    if _SECRET_KEY.search(name) and not isinstance(found, bool | int):
        return REMOVED
    if name == "config" and isinstance(found, str):  # of a NetworkAttachmentDefinition
        try:
            return msgspec.json.encode(_without_secrets(msgspec.json.decode(found), depth=depth)).decode()
        except (ValueError, RecursionError):
            return f"{REMOVED}: it is not JSON"
    return _without_secrets(found, depth=depth)
