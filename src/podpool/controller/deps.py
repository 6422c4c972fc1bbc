"""Dependencies that the ledger-backed reconcilers share."""

import random
from dataclasses import dataclass

from podpool.controller.events import ControllerEvents
from podpool.controller.informers import ControllerInformers
from podpool.controller.metrics import ControllerMetrics
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class ControllerDeps:
    """Clients, informers and settings of one cluster."""

    kube: KubeClient
    """Writes only while this controller is the leader."""
    ledger: LedgerClient
    informers: ControllerInformers
    events: ControllerEvents
    metrics: ControllerMetrics
    settings: ControllerSettings
    clock: Clock
    rng: random.Random
