"""What every part of a controller stands on, handed in from outside."""

import random
from dataclasses import dataclass

from podpool.controller.events import Herald
from podpool.controller.informers import Mirrors
from podpool.controller.metrics import Metrics
from podpool.controller.settings import Settings
from podpool.kube.client import KubeClient
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Ground:
    """One cluster's world."""

    kube: KubeClient
    """Writes only while this controller leads."""
    ledger: LedgerClient
    mirrors: Mirrors
    herald: Herald
    metrics: Metrics
    settings: Settings
    clock: Clock
    rng: random.Random
