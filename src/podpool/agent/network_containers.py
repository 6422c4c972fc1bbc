"""What a network container says about its addresses."""

import msgspec

from podpool.agent.records import Grant
from podpool.api.azure import NetworkContainer
from podpool.core.addresses import Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix


def readable(container: NetworkContainer, *, tag: str, at: float) -> tuple[dict[str, Grant], dict[str, str]]:
    """Sort a status' grants into those that can be used, tagged for their lane, and those that cannot, with reasons."""
    usable: dict[str, Grant] = {}
    wrong: dict[str, str] = {}
    for each in container.ip_assignments:
        try:
            address = parse_address(each.ip)
            subnet_of(container, address.family)
        except InvalidInput as error:
            wrong[each.name] = str(error)
        else:
            usable[each.name] = Grant(
                id=each.name, address=str(address), since=at, container=tag, version=container.version
            )
    return usable, wrong


def same_grants(container: NetworkContainer, known: NetworkContainer) -> NetworkContainer:
    """Take what else a status says at a version that is known: that may change, its grants may not."""
    return msgspec.structs.replace(container, ip_assignments=known.ip_assignments)


def families(container: NetworkContainer) -> tuple[Family, ...]:
    """Tell which families a container has addresses of: those whose subnet can be read."""
    return tuple(family for family in Family if _has(container, family))


def _has(container: NetworkContainer, family: Family) -> bool:
    try:
        subnet_of(container, family)
    except InvalidInput:
        return False
    return True


def subnet_of(container: NetworkContainer, family: Family) -> Prefix:
    """Read the subnet of a container's addresses of a family; raises `InvalidInput`."""
    space = container.subnet_address_space_v6 if family is Family.V6 else container.subnet_address_space
    # a container of IPv6 alone may have its subnet in the plain field
    subnet = parse_prefix(space or container.subnet_address_space, what="subnetAddressSpace")
    if subnet.family is not family:
        raise InvalidInput("subnetAddressSpace", str(subnet), f"has no IPv{family} addresses")
    return subnet


def interface_of(container: NetworkContainer | None, text: str) -> tuple[int, str]:
    """Find what an interface needs besides its address: the length of the prefix, and the gateway.

    A subnet may have grown by a further CIDR, which the status has no place for: an address there has no neighbours.
    """
    address, container = parse_address(text), container or NetworkContainer()
    v6 = container.default_gateway_v6 if address.family is Family.V6 else ""
    space = subnet_of(container, address.family)
    return space.length if address in space else address.family.bits, v6 or container.default_gateway
