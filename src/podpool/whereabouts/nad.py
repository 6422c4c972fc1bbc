"""Multus' objects: NetworkAttachmentDefinitions that use podpool, and the network-status annotation of Pods."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from podpool.api.annotation_decoder import decode_annotation
from podpool.api.builtin import AddressedPod
from podpool.api.multus import NetworkAttachmentDefinition
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import read_network_config, read_struct
from podpool.whereabouts.config import IpamConfig, RangeConfig, parse_ipam_config
from podpool.whereabouts.config_merge import RawIpamConfig, uses_node_pool
from podpool.whereabouts.object_names import slice_pool_name


class ParsedNad(msgspec.Struct, frozen=True, kw_only=True):
    """A NetworkAttachmentDefinition (NAD) whose addresses come from ranges that podpool serves."""

    key: str
    """`namespace/name`."""
    config: IpamConfig
    created: str = ""

    @property
    def pool_name(self) -> str:
        """The name of the NodeSlicePool of its first range. Raises `InvalidInput` if no object can have it."""
        return slice_pool_name(network=self.config.network_name, name=self.config.name)


def parse_nad(definition: NetworkAttachmentDefinition, *, flat: str | bytes | None = None) -> ParsedNad | None:
    """Parse a NAD. None if it uses another IPAM plugin or the node's pool; raises `InvalidInput`.

    A configuration without a name gets the name of the NAD, as in Multus. The flat file is merged as on the nodes.
    """
    if not definition.spec.config:
        return None
    network = read_network_config(definition.spec.config)
    if not network.is_served or uses_node_pool(read_struct(network.ipam or {}, RawIpamConfig, at="ipam")):
        return None
    config = parse_ipam_config(network, flat=flat)
    config = msgspec.structs.replace(config, name=config.name or definition.metadata.name)
    return ParsedNad(key=definition.key, config=config, created=definition.metadata.creation_timestamp or "")


def suggest_slice_size(range_: RangeConfig, *, nodes: int) -> str:
    """Return a slice size that suffices for twice the nodes if possible. Raises `InvalidInput` if no size fits."""
    prefix = range_.prefix
    longest = prefix.family.bits - 2
    needed = prefix.length + max(nodes - 1, 0).bit_length()
    if needed > longest:
        raise InvalidInput("range", str(prefix), f"cannot be divided into {nodes} slices: use a shorter prefix")
    return f"/{min(needed + 1, longest)}"


class NetworkStatus(msgspec.Struct, frozen=True):
    """One network of a Pod, as Multus reports it once all networks of the Pod are attached."""

    name: str = ""
    """The NAD, as `namespace/name`."""
    interface: str = ""
    ips: tuple[str, ...] = ()
    default: bool = False
    """Whether it is the Pod's default network."""

    @property
    def addresses(self) -> Iterator[Address]:
        """The valid ones of its addresses; none of a default network without a NAD, which is another plugin's."""
        for text in () if self.default and "/" not in self.name else self.ips:
            with suppress(InvalidInput):
                yield parse_address(text)


_STATUSES = msgspec.json.Decoder(tuple[NetworkStatus, ...])


def network_statuses(pod: AddressedPod) -> tuple[NetworkStatus, ...]:
    """Return the networks of a Pod; none if Multus has not reported them yet, or they cannot be read."""
    return decode_annotation(_STATUSES, pod.metadata.annotations.status) or ()
