"""Which tables the cluster's NetworkAttachmentDefinitions need, and what is told of those that get none."""

from podpool.api.builtin import Node
from podpool.api.whereabouts import NodeSlicePool
from podpool.controller.slices.events import ControllerEvents
from podpool.controller.slices.informers import SliceInformers
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.cache import ObjectCache
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, KnownNames
from podpool.whereabouts.multus import ParsedNad, parse_nad, suggest_slice_size
from podpool.whereabouts.network_plan import NadRejection, NetworkPlan, SliceTableKey, plan_networks
from podpool.whereabouts.object_names import PoolIdentifier


class NADPlanner:
    """Reads all definitions; what each says is read once."""

    def __init__(
        self, mirrors: SliceInformers, nodes: ObjectCache[Node], telling: ControllerEvents, *, flat_file: bytes | None = None
    ) -> None:
        self._mirrors = mirrors
        self._nodes = nodes
        self._telling = telling
        self._flat_file = flat_file
        self.networks = NetworkPlan()
        """As of the last look,"""
        self.names: frozenset[str] = frozenset()
        """and the names of all networks, cut or not,"""
        self.looked = False
        """if there was one."""

    def look(self) -> NetworkPlan:
        """Plan anew, and tell whoever is refused."""
        attachments: list[ParsedNad] = []
        unreadable: list[NadRejection] = []
        for definition in self._mirrors.attachments.values():
            try:
                attachment = parse_nad(definition, flat=self._flat_file)
            except InvalidInput as error:
                alone = definition.key
                unreadable.append(NadRejection(rejected=alone, nads=(alone,), reason=str(error)))
                continue
            if attachment:
                attachments.append(attachment)
        published = {pool.metadata.name: key for pool in self._mirrors.tables.cache.values() if (key := key_of(pool))}
        self.networks, self.looked = plan_networks(attachments, published=published), True
        self.names = frozenset(each.config.network_name for each in attachments)
        for refusal in (*unreadable, *self.networks.rejections):
            self._tell(refusal)
        for attachment in attachments:
            self._hint(attachment)
        return self.networks

    def known(self, *networks: str) -> KnownNames:
        """Tell which names pools may have in them, beside networks that no definition names any more."""
        return KnownNames(nodes=set(self._nodes), networks={*networks, *self.names})

    def has_slice(self, place: PoolIdentifier) -> bool:
        """Tell whether a range is a part of one that is cut in its network."""
        keys = (plan.key for plan in self.networks.tables if plan.key.network == place.network)
        return any(key.range != place.range and key.range.range.overlaps(place.range.range) for key in keys)

    def _tell(self, refusal: NadRejection) -> None:
        for named in refusal.nads:
            definition = self._mirrors.attachments.get(named)
            if definition:
                self._telling.refused(definition, refusal)

    def _hint(self, attachment: ParsedNad) -> None:
        """Say which size would fit to who wishes for slices and names none."""
        definition = self._mirrors.attachments.get(attachment.key)
        config = attachment.config
        if definition is None or not config.fast_ipam or config.sliced or not config.ranges:
            return
        try:
            size = suggest_slice_size(config.ranges[0], nodes=len(self._nodes))
        except InvalidInput as error:
            self._telling.unsized(definition, f"and no size fits: {error}")
        else:
            self._telling.unsized(definition, f'set "node_slice_size": "{size}", which fits {len(self._nodes)} nodes')


def key_of(pool: NodeSlicePool) -> SliceTableKey | None:
    """Tell which table a NodeSlicePool of ours shows; None for what others wrote, or nobody can read."""
    if NETWORK_ANNOTATION not in pool.metadata.annotations:
        return None
    try:
        return SliceTableKey(pool.metadata.annotations[NETWORK_ANNOTATION], parse_prefix(pool.spec.range))
    except InvalidInput:
        return None
