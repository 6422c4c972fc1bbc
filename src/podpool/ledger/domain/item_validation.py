"""Validation of reconcile and inventory items. Each error names its field."""

import re

from podpool.core.errors import InvalidInput, quoted
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings
from podpool.ledger.errors import Invalid
from podpool.ledger.messages import DemandReport, InventoryItem, ReconcileItem

MAX_WANTED = 1 << 16
MAX_NAME_LENGTH = 253
MAX_COOLED_SECONDS = 1e9
MAX_VERSION = 1 << 53
"""Not every JSON parser reads larger integers exactly."""

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_item(item: ReconcileItem | InventoryItem) -> None:
    """Check the fields about the node and its agent."""
    for field, text in (("node", item.node), ("node_uid", item.node_uid)):
        if not 0 < len(text) <= MAX_NAME_LENGTH:
            raise Invalid(f"{field} has {len(text)} characters: must be from 1 to {MAX_NAME_LENGTH}", field=field)
    if not 0 <= item.wanted <= MAX_WANTED:
        raise Invalid(f"wanted {item.wanted}: must be from 0 to {MAX_WANTED}", field="wanted")
    if not 0 <= item.cooled_seconds <= MAX_COOLED_SECONDS:
        limit = f"must be from 0 to {MAX_COOLED_SECONDS:g}"
        raise Invalid(f"cooled_seconds {item.cooled_seconds}: {limit}", field="cooled_seconds")
    if not 1 <= item.maximum <= MAX_WANTED:
        raise Invalid(f"maximum {item.maximum}: must be from 1 to {MAX_WANTED}", field="maximum")
    if item.pinned is not None:
        _check_scaler(item.pinned)
    if item.report is not None:
        _check_report(item.report)


def parse_uuid(text: str, *, field: str = "grants") -> bytes:
    """Parse the ID of a grant or an NC."""
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
        if not 0 <= value <= MAX_VERSION:
            raise Invalid(f"report {field} {value}: must be from 0 to {MAX_VERSION}", field=f"report.{field}")
