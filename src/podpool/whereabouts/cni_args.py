"""CNI_ARGS of a runtime, and the Pod interface that an address is allocated to."""

from collections.abc import Callable

import msgspec

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix

_KNOWN = ("IgnoreUnknown", "K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_INFRA_CONTAINER_ID", "IP", "GATEWAY")
_TRUE, _FALSE = ("1", "true"), ("0", "false")


class PodInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of an allocation: an interface of a Pod, in one sandbox of that Pod."""

    podref: str
    """The Pod, as `namespace/name`."""
    container_id: str
    ifname: str


class CniArgs(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of CNI_ARGS that an IPAM plugin uses."""

    pod_name: str = ""
    pod_namespace: str = ""
    addresses: tuple[str, ...] = ()
    """Additional static addresses for the container, in CIDR notation."""
    gateways: tuple[str, ...] = ()

    def pod_interface(self, *, container_id: str, ifname: str) -> PodInterface:
        """Return the owner. An allocation without a Pod could not be garbage-collected, so the Pod must be named."""
        podref = f"{self.pod_namespace}/{self.pod_name}"
        if not (self.pod_namespace and self.pod_name):
            raise InvalidInput("CNI_ARGS", podref, "names no Pod: K8S_POD_NAMESPACE and K8S_POD_NAME must be set")
        return PodInterface(podref=podref, container_id=container_id, ifname=ifname)


def parse_cni_args(text: str) -> CniArgs:
    """Parse `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0`."""
    values: dict[str, str] = {}
    for pair in filter(None, text.split(";")):
        name, equals, value = pair.partition("=")
        if not equals or "=" in value:
            raise InvalidInput("CNI_ARGS", pair, "is not a pair: write NAME=VALUE")
        values[name] = value
    unknown = [] if _ignores_unknown(values) else [name for name in values if name not in _KNOWN]
    if unknown:
        reason = f"is unknown: remove it, or add IgnoreUnknown=1; known names are {', '.join(_KNOWN)}"
        raise InvalidInput("CNI_ARGS", ";".join(unknown), reason)
    return CniArgs(
        pod_name=values.get("K8S_POD_NAME", ""),
        pod_namespace=values.get("K8S_POD_NAMESPACE", ""),
        addresses=_parse_list(values, "IP", parse_prefix),
        gateways=_parse_list(values, "GATEWAY", parse_address),
    )


def _ignores_unknown(values: dict[str, str]) -> bool:
    text = values.get("IgnoreUnknown", "0").lower()
    if text not in (*_TRUE, *_FALSE):
        raise InvalidInput("IgnoreUnknown", text, "is neither true nor false: write 1 or 0")
    return text in _TRUE


def _parse_list(values: dict[str, str], name: str, parse: Callable[..., object]) -> tuple[str, ...]:
    """Return the comma-separated items. Each is validated here, where the error can name the argument."""
    texts = tuple(filter(None, map(str.strip, values.get(name, "").split(","))))
    for each in texts:
        parse(each, what=f"CNI_ARGS {name}", leading_zeros=True)
    return texts
