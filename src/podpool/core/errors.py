"""What can go wrong in a decision, typed.

An error carries the facts; its sentence is for the person who must act: what happened, to which object, what to do.
Every parser in this room raises `InvalidInput` and nothing else, whatever it is fed.
"""


def quoted(value: object) -> str:
    """Quote an input in a sentence, long ones in short."""
    try:
        quoted = repr(value)
    except ValueError:  # an integer of thousands of digits, which Python refuses to write
        return "a number that is too long to be shown"
    return quoted if len(quoted) <= 100 else f"{quoted[:97]}..."


class PodpoolError(Exception):
    """Whatever podpool itself refuses or cannot do."""


class InvalidInput(PodpoolError, ValueError):
    """A value from outside that cannot be meant: names the field, the value and the reason."""

    def __init__(self, what: str, value: object, reason: str) -> None:
        super().__init__(what, value, reason)
        self.what = what
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what} {quoted(self.value)}: {self.reason}"


class PoolExhausted(PodpoolError):
    """Nothing is free: some may be taken, some may still rest."""

    def __init__(self, *, taken: int, resting: int) -> None:
        super().__init__(f"no address is free: {taken} taken, {resting} resting")
        self.taken = taken
        self.resting = resting


class WrongState(PodpoolError):
    """An address is not in the state that the operation needs."""

    def __init__(self, address: str, *, state: str, needed: str) -> None:
        super().__init__(f"{address} is {state}, not {needed}")
        self.address = address
        self.state = state
        self.needed = needed
