"""What Prometheus is shown: dashboards and alerts have names and labels written into them.

The dashboard's own process has no page of metrics.
"""

import asyncio
import random

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from podpool.agent.metrics import AgentMetrics, MetricsSnapshot
from podpool.controller.metrics import ControllerMetrics, ControllerSnapshot
from podpool.kube.workqueue import WorkQueue
from podpool.ledger.admin_messages import CreateTokenRequest
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import build_app
from podpool.ledger.messages import SubnetSpec
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.process import health_handler
from podpool.runtime.transport import Handler, Request
from tests.agent.clocks import SetClock
from tests.golden.files import matches_json
from tests.golden.samples import CUSTOM, sample
from tests.golden.sources import assigned_strings, first_arguments, keys_of

RNG = random.Random(1)  # noqa: S311  the same each time
CUSTOM[WorkQueue] = lambda: WorkQueue(rng=RNG)


def families(page: bytes) -> dict[str, dict[str, object]]:
    """Read the type, the samples and the labels of each metric."""
    shown: dict[str, dict[str, object]] = {}
    for family in text_string_to_metric_families(page.decode()):
        names = {each.name for each in family.samples if not each.name.endswith("_created")}
        labels = {label for each in family.samples for label in each.labels}
        if names:
            shown[family.name] = {"type": family.type, "samples": sorted(names), "labels": sorted(labels)}
    return shown


async def page_of(handler: Handler) -> bytes:
    return await (await handler(Request(method="GET", path="/metrics"))).read()


def test_the_agent() -> None:
    async def answered(_frame: bytes) -> bytes:
        return b"\1"

    async def shown() -> bytes:
        metrics = AgentMetrics(answered, lambda: sample(MetricsSnapshot))
        await metrics.handle(b"podpool/1\0ADD\0")
        return await page_of(metrics.page(health_handler(tuple)))

    matches_json("metrics/agent.json", families(asyncio.run(shown())))


def test_the_controller() -> None:
    async def shown() -> bytes:
        metrics = ControllerMetrics()
        with metrics.measure("nodes"):
            metrics.errors.labels("nodes").inc()
        metrics.orphans.labels("slice").inc()
        return metrics.render(sample(ControllerSnapshot))

    matches_json("metrics/controller.json", families(asyncio.run(shown())))


def test_the_ledger() -> None:
    async def shown() -> bytes:
        store = InlineSqliteStore()
        ledger = LedgerService(store, clock=SetClock(), rng=RNG)
        app = build_app(ledger, store, clock=SetClock())
        token = await ledger.admin.create_token(CreateTokenRequest(name="admin", admin=True))
        new = msgspec.json.encode(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
        headers = {"authorization": f"Bearer {token.secret}"}
        made = await app.api(Request(method="POST", path="/v1/subnets", headers=headers, body=new))
        assert 200 == made.status
        await app.status.refresh()
        return await page_of(app.health)

    matches_json("metrics/ledger.json", families(asyncio.run(shown())))


def test_values_of_labels() -> None:
    """Names of controllers, of what they put in order, and of watches: they are in the source only."""
    controllers = {*first_arguments("measure"), *assigned_strings("queues")}
    kinds = set(first_arguments("labels")) - controllers
    values = {"controller": sorted(controllers), "kind": sorted(kinds), "watch": keys_of("last_contact")}
    matches_json("metrics/label-values.json", values)
