"""Is an item, or a listed container, something that can be meant? Each complaint names its field."""

import re

from podpool.core.errors import InvalidInput, quoted
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.ledger.errors import Invalid
from podpool.ledger.messages import DemandReport, InventoryItem, ReconcileItem

MOST_WANTED = 1 << 16
LONGEST_NAME = 253
MOST_RESTED = 1e9
MOST_VERSION = 1 << 53
"""Beyond this, not every reader of JSON counts right."""

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check(item: ReconcileItem | InventoryItem) -> None:
    """Check what an item says about its node and its agent."""
    for field, text in (("node", item.node), ("node_uid", item.node_uid)):
        if not 0 < len(text) <= LONGEST_NAME:
            raise Invalid(f"{field} has {len(text)} letters: must be from 1 to {LONGEST_NAME}", field=field)
    if not 0 <= item.wanted <= MOST_WANTED:
        raise Invalid(f"wanted {item.wanted}: must be from 0 to {MOST_WANTED}", field="wanted")
    if not 0 <= item.cooled_seconds <= MOST_RESTED:
        raise Invalid(f"rested {item.cooled_seconds}: must be from 0 to {MOST_RESTED:g} seconds", field="rested")
    if item.maximum < 1:
        raise Invalid(f"maximum {item.maximum}: must be at least 1", field="maximum")
    if item.pinned is not None:
        _check_scaler(item.pinned)
    if item.report is not None:
        _check_report(item.report)


def grant_bytes(text: str, *, field: str = "grants") -> bytes:
    """Read the identity of a grant, or of a container."""
    if not _UUID.fullmatch(text):
        raise Invalid(f"{quoted(text)} is not a UUID in lower case", field=field)
    return bytes.fromhex(text.replace("-", ""))


def _check_scaler(scaler: Scaler) -> None:
    try:
        Settings(batch=scaler.batch, buffer=scaler.buffer)
    except InvalidInput as error:
        raise Invalid(f"pinned {error}", field=f"pinned.{error.what}") from None


def _check_report(report: DemandReport) -> None:
    for field in ("demand", "waiting", "batch", "version"):
        value = getattr(report, field)
        if not 0 <= value <= MOST_VERSION:
            raise Invalid(f"report {field} {value}: must be from 0 to {MOST_VERSION}", field=f"report.{field}")
