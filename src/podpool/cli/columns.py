"""Words in columns, as kubectl shows them."""

from collections.abc import Sequence


def padded(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[str]]:
    """Bring a head and its rows to the same widths; the last column stays as it is."""
    lines = [list(head), *([str(each) for each in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    widths[-1] = 0
    return [[word.ljust(width) for word, width in zip(line, widths, strict=True)] for line in lines]


def columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Write a table, a line each."""
    return ["  ".join(line).rstrip() for line in padded(head, rows)]
