"""What a runtime says about a container: CNI_ARGS, and with it who owns an address."""

from collections.abc import Callable

import msgspec

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix

_KNOWN = ("IgnoreUnknown", "K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_INFRA_CONTAINER_ID", "IP", "GATEWAY")
_YES, _NO = ("1", "true"), ("0", "false")


class PodInterface(msgspec.Struct, frozen=True, kw_only=True):
    """Who an address is for: a Pod's interface, in one of the sandboxes that the Pod has had."""

    podref: str
    """The Pod's namespace and name, as `namespace/name`."""
    container: str
    ifname: str


class CniArgs(msgspec.Struct, frozen=True, kw_only=True):
    """CNI_ARGS, as far as an address plugin looks at it."""

    pod_name: str = ""
    pod_namespace: str = ""
    addresses: tuple[str, ...] = ()
    """Further addresses for the container, in CIDR notation."""
    gateways: tuple[str, ...] = ()

    def owner(self, *, container: str, ifname: str) -> PodInterface:
        """Name who asks; without a Pod nobody could tell later whose the address is."""
        podref = f"{self.pod_namespace}/{self.pod_name}"
        if not (self.pod_namespace and self.pod_name):
            raise InvalidInput("CNI_ARGS", podref, "names no Pod: K8S_POD_NAMESPACE and K8S_POD_NAME must be set")
        return PodInterface(podref=podref, container=container, ifname=ifname)


def parse_cni_args(text: str) -> CniArgs:
    """Read `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0`."""
    given: dict[str, str] = {}
    for pair in filter(None, text.split(";")):
        name, equals, value = pair.partition("=")
        if not equals or "=" in value:
            raise InvalidInput("CNI_ARGS", pair, "is not a pair: write NAME=VALUE")
        given[name] = value
    unknown = [] if _ignores_unknown(given) else [name for name in given if name not in _KNOWN]
    if unknown:
        reason = f"is not known here: leave it out, or add IgnoreUnknown=1; known are {', '.join(_KNOWN)}"
        raise InvalidInput("CNI_ARGS", ";".join(unknown), reason)
    return CniArgs(
        pod_name=given.get("K8S_POD_NAME", ""),
        pod_namespace=given.get("K8S_POD_NAMESPACE", ""),
        addresses=_listed(given, "IP", parse_prefix),
        gateways=_listed(given, "GATEWAY", parse_address),
    )


def _ignores_unknown(given: dict[str, str]) -> bool:
    stated = given.get("IgnoreUnknown", "0").lower()
    if stated not in (*_YES, *_NO):
        raise InvalidInput("IgnoreUnknown", stated, "is neither true nor false: write 1 or 0")
    return stated in _YES


def _listed(given: dict[str, str], name: str, parse: Callable[..., object]) -> tuple[str, ...]:
    """Read what commas part; what cannot be parsed is refused here, where it is known who said it."""
    texts = tuple(filter(None, given.get(name, "").split(",")))
    for each in texts:
        parse(each, what=f"CNI_ARGS {name}", leading_zeros=True)
    return texts
