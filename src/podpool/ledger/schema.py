"""The numbered migrations of each database; a number stands for the same tables in all of them."""

from importlib import resources


def scripts(dialect: str) -> list[str]:
    """Read them, first to last."""
    folder = resources.files("podpool.ledger").joinpath("migrations", dialect)
    return [each.read_text() for each in sorted(folder.iterdir(), key=lambda each: each.name)]
