"""Log lines of workqueues name their reconciler."""

import asyncio
import logging
import random

from podpool.controller.metrics import ControllerMetrics
from podpool.kube.workqueue import Requeue, WorkQueue
from podpool.runtime.logging import fields_of
from podpool.runtime.transport import Unreachable


class FieldsHandler(logging.Handler):
    """Records the fields of each line as a formatter sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(dict(fields_of(record)))


def test_a_failed_reconcile_names_controller_and_key() -> None:
    handler, log = FieldsHandler(), logging.getLogger("podpool.kube.workqueue")

    async def run() -> None:
        queue = WorkQueue(rng=random.Random(1))  # noqa: S311  seeded
        failed = asyncio.Event()

        async def reconcile(key: str) -> Requeue | None:
            failed.set()
            raise Unreachable("API server", f"no answer for {key}")

        worker = asyncio.create_task(ControllerMetrics().run_workers("nodes", queue, reconcile, workers=1))
        queue.add("n1")
        await failed.wait()
        await asyncio.sleep(0)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    log.addHandler(handler)
    try:
        asyncio.run(run())
    finally:
        log.removeHandler(handler)
    assert [("nodes", "n1")] == [(line["controller"], line["key"]) for line in handler.lines]
