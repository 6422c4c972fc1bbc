"""What every part of an agent stands on, handed in from outside."""

import random
from dataclasses import dataclass

from podpool.agent.notices import Tell
from podpool.agent.scaling_modes import Mode
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.runtime.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Ground:
    """One node's world."""

    node: str
    kube: KubeClient
    clock: Clock
    rng: random.Random
    settings: Settings
    tell: Tell
    mode: Mode = Mode.PODS
