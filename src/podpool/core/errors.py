"""Errors of pure decisions.

An error carries the facts; its text states what failed, on which object, why, and what to do. Every parser in `core`
raises `InvalidInput` and nothing else, whatever its input.
"""


def quoted(value: object) -> str:
    """Return an input as it appears in an error, cut at 100 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits, which Python refuses to convert
        return "(a number too long to print)"
    except RecursionError:
        return "(a value nested too deep to print)"
    return text if len(text) <= 100 else f"{text[:97]}..."


class PodpoolError(Exception):
    """Base of all errors that podpool raises on purpose."""


class InvalidInput(PodpoolError, ValueError):
    """A value from outside that is not allowed: names the field, the value and the reason."""

    def __init__(self, what: str, value: object, reason: str) -> None:
        super().__init__(what, value, reason)
        self.what = what
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what} {quoted(self.value)}: {self.reason}"
