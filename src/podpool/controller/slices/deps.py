"""Dependencies that the slice reconcilers share. Slices need no ledger."""

import random
from dataclasses import dataclass

from podpool.api.builtin import Node
from podpool.controller.events import ControllerEvents
from podpool.controller.metrics import ControllerMetrics
from podpool.controller.settings import ControllerSettings
from podpool.controller.slices.informers import SliceControllerInformers
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class SliceDeps:
    """Clients, informers and settings of one cluster."""

    kube: KubeClient
    """Writes only while this controller is the leader."""
    nodes: ObjectCache[Node]
    informers: SliceControllerInformers
    events: ControllerEvents
    metrics: ControllerMetrics
    settings: ControllerSettings
    clock: Clock
    rng: random.Random

    @property
    def namespace(self) -> str:
        """Namespace of Whereabouts' objects."""
        return self.settings.whereabouts_namespace
