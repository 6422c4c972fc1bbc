"""Findings of preflight: one for each check, also where all is well."""

import enum
from collections.abc import Iterable, Sequence

import msgspec

MAX_NAMES = 3
"""Objects that a finding names; more are counted."""


class Severity(enum.StrEnum):
    """What a finding means for an installation."""

    OK = "ok"
    INFO = "info"
    """Good to know; nothing to do."""
    WARNING = "warning"
    """podpool works, but not everything, or not for long."""
    ERROR = "error"
    """podpool does not work before this is corrected."""
    UNKNOWN = "unknown"
    """It could not be read."""


class PreflightFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check for one object."""

    check: str
    severity: Severity
    object: str
    """Such as `node/a`, or what was checked as a whole."""
    message: str
    remedy: str = ""


class PreflightReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, in the order of the checks."""

    findings: tuple[PreflightFinding, ...]

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity."""
        return sum(each.severity is severity for each in self.findings)


def finding(check: str, severity: Severity, object_: str, message: str, remedy: str = "") -> PreflightFinding:
    """Return a finding."""
    return PreflightFinding(check=check, severity=severity, object=object_, message=message, remedy=remedy)


def unread(check: str, what: str, problem: str) -> PreflightFinding:
    """Return the finding for what could not be read."""
    remedy = "make it readable for this account, and run preflight again"
    return finding(check, Severity.UNKNOWN, what, f"not checked: {problem}", remedy)


def names(found: Sequence[str] | Iterable[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    listed = list(found)
    more = len(listed) - MAX_NAMES
    return ", ".join(listed[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
