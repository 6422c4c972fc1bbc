"""Golden files: the formats that other versions and other programs read, one file for each.

`UPDATE_GOLDEN=1 pytest tests/golden` writes the files from the current code instead of comparing. The difference that
git then shows is the change of the format.
"""

import os
from pathlib import Path

import msgspec

DATA = Path(__file__).parent / "data"


def matches_text(name: str, text: str) -> None:
    """Compare a text with a golden file, or write the file if an update is requested."""
    path = DATA / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs: if that is intended, run UPDATE_GOLDEN=1 pytest tests/golden"


def matches_json(name: str, value: object) -> None:
    """Compare a value with a golden file of JSON, pretty-printed and with sorted keys."""
    matches_text(name, pretty(value))


def matches_lines(name: str, lines: list[str]) -> None:
    """Compare lines with a golden file."""
    matches_text(name, "".join(f"{line}\n" for line in lines))


def read_text(name: str) -> str:
    """Read a golden file."""
    return (DATA / name).read_text()


def pretty(value: object) -> str:
    """Format a value as JSON that is easy to compare."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode() + "\n"


def on_the_wire(value: object) -> object:
    """Encode a value as JSON and decode it again: the keys and values that a reader sees."""
    decoded: object = msgspec.json.decode(msgspec.json.encode(value))
    return decoded
