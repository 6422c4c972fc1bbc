"""Parsing of a network container (NC) in the status of an NNC."""

import msgspec

from podpool.agent.records import PoolGrant
from podpool.api.azure import NetworkContainer
from podpool.core.addresses import Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix

LINK_LOCAL_GATEWAY = "fe80::1"
"""The node, for the IPv6 addresses of an NC whose primary is an IPv4 address."""


def unsupported_reason(nc: NetworkContainer) -> str | None:
    """Return why no address of an NC can be served; None for one whose addresses are granted one by one."""
    refused = []
    if nc.assignment_mode.lower() == "static":
        refused.append(f'assignmentMode "{nc.assignment_mode}" (podpool serves "dynamic")')
    if nc.type.lower() in ("overlay", "vnetblock"):
        refused.append(f'type "{nc.type}" (podpool serves "vnet")')
    if not refused:
        return None
    return (
        f"network container {nc.id} in status.networkContainers of the NodeNetworkConfig has {' and '.join(refused)}: "
        "create the node's pool with a Pod subnet and dynamic allocation, or run Azure's CNS on it"
    )


def parse_grants(nc: NetworkContainer, *, tag: str, at: float) -> tuple[dict[str, PoolGrant], dict[str, str]]:
    """Return the grants of an NC that can be used, and the reasons why the others cannot, by grant ID."""
    usable: dict[str, PoolGrant] = {}
    unusable: dict[str, str] = {}
    for each in nc.ip_assignments:
        try:
            address = parse_address(each.ip)
            subnet_of(nc, address.family)
        except InvalidInput as error:
            unusable[each.name] = str(error)
        else:
            usable[each.name] = PoolGrant(id=each.name, address=str(address), since=at, nc=tag, version=nc.version)
    return usable, unusable


def with_known_grants(nc: NetworkContainer, known: NetworkContainer) -> NetworkContainer:
    """Return an NC with the grants of its known state: at one version other fields may change, grants may not."""
    return msgspec.structs.replace(nc, ip_assignments=known.ip_assignments)


def nc_families(nc: NetworkContainer) -> tuple[Family, ...]:
    """Return the address families of an NC: those whose subnet can be parsed."""
    return tuple(family for family in Family if _has_subnet(nc, family))


def _has_subnet(nc: NetworkContainer, family: Family) -> bool:
    try:
        subnet_of(nc, family)
    except InvalidInput:
        return False
    return True


def subnet_of(nc: NetworkContainer, family: Family) -> Prefix:
    """Return the subnet of an NC's addresses of a family; raises `InvalidInput`."""
    cidr = nc.subnet_address_space_v6 if family is Family.V6 else nc.subnet_address_space
    # an IPv6-only NC may have its subnet in the plain field
    subnet = parse_prefix(cidr or nc.subnet_address_space, what="subnetAddressSpace")
    if subnet.family is not family:
        raise InvalidInput("subnetAddressSpace", str(subnet), f"has no IPv{family} addresses")
    return subnet


def interface_of(nc: NetworkContainer | None, text: str) -> tuple[int, str]:
    """Return prefix length and gateway of an interface with this address.

    A subnet may have grown by another CIDR, which the status cannot express: an address there is on-link with no other.
    """
    address, nc = parse_address(text), nc or NetworkContainer()
    subnet = subnet_of(nc, address.family)
    return subnet.length if address in subnet else address.family.bits, gateway_of(nc, address.family)


def gateway_of(nc: NetworkContainer, family: Family) -> str:
    """Return the gateway of a family, which a third party may have written into the plain field; empty without one."""
    fields = (nc.default_gateway_v6, nc.default_gateway) if family is Family.V6 else (nc.default_gateway,)
    return next((each for each in fields if _is_of_family(each, family)), "")


def node_gateway_of(nc: NetworkContainer, family: Family) -> str:
    """Return a gateway that is an address of the node alone; empty if there is none.

    An interface plugin that routes puts the gateway on the node's end of each veth. The address of the subnet's router
    there would cut the node off from that router, and let the node answer for it. The primary of the NC is this node's,
    and no Pod gets it.
    """
    primary = nc.primary_ip.partition("/")[0]
    if _is_of_family(primary, family):
        return primary
    return LINK_LOCAL_GATEWAY if family is Family.V6 else ""


def _is_of_family(text: str, family: Family) -> bool:
    try:
        return bool(text) and parse_address(text).family is family
    except InvalidInput:
        return False
