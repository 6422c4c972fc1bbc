"""What every part of a controller stands on, handed in from outside."""

import random
from dataclasses import dataclass

from podpool.controller.events import ControllerEvents
from podpool.controller.informers import ControllerInformers
from podpool.controller.metrics import Metrics
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class ControllerDeps:
    """One cluster's world."""

    kube: KubeClient
    """Writes only while this controller leads."""
    ledger: LedgerClient
    mirrors: ControllerInformers
    herald: ControllerEvents
    metrics: Metrics
    settings: ControllerSettings
    clock: Clock
    rng: random.Random
