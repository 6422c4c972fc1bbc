"""What every part of the slices' side stands on, handed in from outside; it knows of no ledger."""

import random
from dataclasses import dataclass

from podpool.api.builtin import Node
from podpool.controller.metrics import Metrics
from podpool.controller.settings import ControllerSettings
from podpool.controller.slices.events import ControllerEvents
from podpool.controller.slices.informers import SliceInformers
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class SliceDeps:
    """One cluster's world."""

    kube: KubeClient
    """Writes only while this controller leads."""
    nodes: ObjectCache[Node]
    mirrors: SliceInformers
    telling: ControllerEvents
    metrics: Metrics
    settings: ControllerSettings
    clock: Clock
    rng: random.Random

    @property
    def namespace(self) -> str:
        """Where Whereabouts' objects are."""
        return self.settings.whereabouts_namespace
