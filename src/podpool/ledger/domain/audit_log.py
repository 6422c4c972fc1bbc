"""The audit log: administrative calls with their callers and results, the latest `MAX_ENTRIES`. It has no secrets.

Only calls with an admin token are recorded, so that no other caller can displace an entry.
"""

from podpool.ledger.admin_messages import AuditEntry, AuditLog
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import AuditRow

MAX_ENTRIES = 10_000
MAX_LIMIT = 1_000
"""Entries in one response."""


def record(repo: Repository, row: AuditRow) -> None:
    """Append a call; the oldest is deleted."""
    repo.add_audit(row, keep=MAX_ENTRIES)


def audit_log(repo: Repository, limit: int) -> AuditLog:
    """Return the latest calls."""
    return AuditLog(
        entries=tuple(
            AuditEntry(
                at=timestamp(repo, row.at),
                token=row.token,
                token_id=row.token_id,
                action=row.action,
                object=row.object,
                result=row.result,
            )
            for row in repo.audit_rows(limit)
        )
    )
