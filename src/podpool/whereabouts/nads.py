"""NetworkAttachmentDefinitions that ask us for addresses, as the slice controller looks at them."""

import msgspec

from podpool.api.multus import NetworkAttachmentDefinition
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import read_network_config, read_struct
from podpool.whereabouts.config import IpamConfig, RangeConfig, parse_ipam_config
from podpool.whereabouts.object_names import slice_pool_name
from podpool.whereabouts.raw_config import RawIpamConfig, uses_node_pool


class ParsedNad(msgspec.Struct, frozen=True, kw_only=True):
    """A network that Pods can be attached to, and that is ours."""

    key: str
    """`namespace/name`."""
    config: IpamConfig
    created: str = ""

    @property
    def pool_name(self) -> str:
        """The name of its NodeSlicePool, as far as one range goes; refused when no object can have it."""
        return slice_pool_name(network=self.config.network_name, name=self.config.name)


def parse_nad(definition: NetworkAttachmentDefinition, *, flat: str | bytes | None = None) -> ParsedNad | None:
    """Read a definition; None when it asks others for addresses, or the nodes' own pools; raises `InvalidInput`.

    Without a name in its configuration it goes by its own, as Multus has it. A flat file counts as on the nodes.
    """
    if not definition.spec.config:
        return None
    network = read_network_config(definition.spec.config)
    if not network.ours or uses_node_pool(read_struct(network.ipam or {}, RawIpamConfig, at="ipam")):
        return None
    config = parse_ipam_config(network, flat=flat)
    name = config.name or definition.metadata.name
    return ParsedNad(
        key=definition.key,
        config=msgspec.structs.replace(config, name=name),
        created=definition.metadata.creation_timestamp or "",
    )


def suggest_slice_size(wanted: RangeConfig, *, nodes: int) -> str:
    """Name a slice size for a range: room for twice the nodes where the range has it; refused when it cannot be cut."""
    prefix = wanted.prefix
    longest = prefix.family.bits - 2
    needed = prefix.length + max(nodes - 1, 0).bit_length()
    if needed > longest:
        raise InvalidInput("range", str(prefix), f"cannot be cut into {nodes} slices: use a shorter prefix")
    return f"/{min(needed + 1, longest)}"
