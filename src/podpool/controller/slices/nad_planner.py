"""Which tables the cluster's NetworkAttachmentDefinitions need, and what is told of those that get none."""

from podpool.api.builtin import Node
from podpool.api.whereabouts import NodeSlicePool
from podpool.controller.slices.events import Telling
from podpool.controller.slices.informers import SliceMirrors
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.cache import Store
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, KnownNames
from podpool.whereabouts.nads import Attachment, read_attachment, size_that_fits
from podpool.whereabouts.network_plan import Networks, Refusal, TableKey, plan_networks
from podpool.whereabouts.object_names import PoolPlace


class Plans:
    """Reads all definitions; what each says is read once."""

    def __init__(
        self, mirrors: SliceMirrors, nodes: Store[Node], telling: Telling, *, flat_file: bytes | None = None
    ) -> None:
        self._mirrors = mirrors
        self._nodes = nodes
        self._telling = telling
        self._flat_file = flat_file
        self.networks = Networks()
        """As of the last look,"""
        self.names: frozenset[str] = frozenset()
        """and the names of all networks, cut or not,"""
        self.looked = False
        """if there was one."""

    def look(self) -> Networks:
        """Plan anew, and tell whoever is refused."""
        attachments: list[Attachment] = []
        unreadable: list[Refusal] = []
        for definition in self._mirrors.attachments.values():
            try:
                attachment = read_attachment(definition, flat=self._flat_file)
            except InvalidInput as error:
                alone = definition.key
                unreadable.append(Refusal(refused=alone, attachments=(alone,), reason=str(error)))
                continue
            if attachment:
                attachments.append(attachment)
        published = {pool.metadata.name: key for pool in self._mirrors.tables.store.values() if (key := key_of(pool))}
        self.networks, self.looked = plan_networks(attachments, published=published), True
        self.names = frozenset(each.config.network_name for each in attachments)
        for refusal in (*unreadable, *self.networks.refusals):
            self._tell(refusal)
        for attachment in attachments:
            self._hint(attachment)
        return self.networks

    def known(self, *networks: str) -> KnownNames:
        """Tell which names pools may have in them, beside networks that no definition names any more."""
        return KnownNames(nodes=set(self._nodes), networks={*networks, *self.names})

    def has_slice(self, place: PoolPlace) -> bool:
        """Tell whether a range is a part of one that is cut in its network."""
        keys = (plan.key for plan in self.networks.plans if plan.key.network == place.network)
        return any(key.range != place.range and key.range.range.overlaps(place.range.range) for key in keys)

    def _tell(self, refusal: Refusal) -> None:
        for named in refusal.attachments:
            definition = self._mirrors.attachments.get(named)
            if definition:
                self._telling.refused(definition, refusal)

    def _hint(self, attachment: Attachment) -> None:
        """Say which size would fit to who wishes for slices and names none."""
        definition = self._mirrors.attachments.get(attachment.key)
        config = attachment.config
        if definition is None or not config.fast_ipam or config.sliced or not config.ranges:
            return
        try:
            size = size_that_fits(config.ranges[0], nodes=len(self._nodes))
        except InvalidInput as error:
            self._telling.unsized(definition, f"and no size fits: {error}")
        else:
            self._telling.unsized(definition, f'set "node_slice_size": "{size}", which fits {len(self._nodes)} nodes')


def key_of(pool: NodeSlicePool) -> TableKey | None:
    """Tell which table a NodeSlicePool of ours shows; None for what others wrote, or nobody can read."""
    if NETWORK_ANNOTATION not in pool.metadata.annotations:
        return None
    try:
        return TableKey(pool.metadata.annotations[NETWORK_ANNOTATION], parse_prefix(pool.spec.range))
    except InvalidInput:
        return None
