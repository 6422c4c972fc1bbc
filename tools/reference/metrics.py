"""The page of metrics: what each part's page shows to Prometheus, read from that page.

Each is asked for its page with one of everything on it, because only a sample tells the labels of a metric.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect as types
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from podpool.agent.metrics import AgentMetrics, MetricsSnapshot
from podpool.controller.metrics import ControllerMetrics, ControllerSnapshot
from podpool.kube.workqueue import Requeue, WorkQueue
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import build_app
from podpool.ledger.messages import SubnetSpec
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request, Response
from tools.reference.markdown import code, table

_HISTOGRAM = ("_bucket", "_sum", "_count")


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, by the name that a query uses."""

    name: str
    kind: str
    labels: tuple[str, ...]
    sentence: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which it is stored."""
        return tuple(f"{self.name}{end}" for end in _HISTOGRAM) if self.kind == "histogram" else (self.name,)


def metrics_page() -> str:
    """Write what each part tells."""
    parts = asyncio.run(measures())
    sections = "\n\n".join(f"## {part}\n\n{_table(told)}" for part, told in parts.items())
    return f"""# Metrics

Made by `make docs` from the pages that the parts show. The ledger tells them on its own port (7780), the controller on
7783, the agent on 7784, at `/metrics`. The agent's `cx_ipam_*` have the names and labels of Azure's CNS. Rules that use
them are in [operating](../operating.md#alerts).

{sections}
"""


async def measures() -> dict[str, list[Measure]]:
    """Ask every part, by its name."""
    pages = {"LedgerService": await _ledger(), "Controller": await _controller(), "Agent": await _agent()}
    return {part: sorted(_read(page), key=lambda each: each.name) for part, page in pages.items()}


async def _ledger() -> str:
    store, clock = InlineSqliteStore(), SystemClock()
    ledger = LedgerService(store, clock=clock, rng=random.Random(1))  # noqa: S311  the same each time
    await ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
    handler = build_app(ledger, store, clock=clock)
    await handler(Request(method="GET", path="/readyz"))
    page = await (await handler(Request(method="GET", path="/metrics"))).read()
    await store.close()
    return page.decode()


async def _controller() -> str:
    metrics = ControllerMetrics()

    async def nothing(_key: str) -> Requeue | None:
        return None

    await metrics.measured("nodes", nothing)("n1")
    metrics.orphans.labels("nnc")
    return metrics.render(example(types.type_info(ControllerSnapshot))).decode()


async def _agent() -> str:
    picture = example(types.type_info(MetricsSnapshot))

    async def deaf(_frame: bytes) -> bytes:
        return b"\0"

    async def nobody(_request: Request) -> Response:
        return Response(404, b"")

    metrics = AgentMetrics(deaf, lambda: picture)
    response = await metrics.page(nobody)(Request(method="GET", path="/metrics"))
    return (await response.read()).decode()


def example(kind: types.Type) -> Any:  # noqa: ANN401  a value of that type
    """Make up a value with one of everything in it."""
    made: Any
    match kind:
        case types.StructType(cls=cls, fields=fields):
            made = cls(**{field.name: example(field.type) for field in fields})
        case types.VarTupleType(item_type=item):
            made = (example(item),)
        case types.TupleType(item_types=items):
            made = tuple(map(example, items))
        case types.DictType(key_type=key, value_type=value):
            made = {example(key): example(value)}
        case types.UnionType(types=several):
            made = example(several[0])
        case types.CustomType(cls=cls) if cls is WorkQueue:
            made = WorkQueue(rng=random.Random(1))  # noqa: S311  the same each time
        case _:
            made = _PLAIN[type(kind)]
    return made


_PLAIN: Mapping[type[types.Type], object] = {
    types.BoolType: True,
    types.FloatType: 1.0,
    types.IntType: 1,
    types.StrType: "",
}


def _read(page: str) -> Iterator[Measure]:
    for family in text_string_to_metric_families(page):
        if family.name.endswith("_created"):  # when a counter began: prometheus_client's own
            continue
        if not family.samples:
            raise ValueError(f"{family.name} has no sample, so its labels cannot be told")
        yield Measure(
            name=family.name + "_total" * (family.type == "counter"),
            kind=family.type,
            labels=_labels(family),
            sentence=family.documentation,
        )


def _labels(family: Metric) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for sample in family.samples for name in sample.labels if name != "le"))


def _table(told: list[Measure]) -> str:
    rows = [(code(each.name), each.kind, ", ".join(map(code, each.labels)), f"{each.sentence}.") for each in told]
    return table(("metric", "type", "labels", "what it is"), rows)
