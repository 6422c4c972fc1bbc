"""Sparse hierarchical bitmap: a set of integers below a size that finds its lowest absent member in O(log size).

A tree of 256-bit words. A bit of a leaf marks a member; a bit above marks a child that is full. Invariant: neither full
children nor empty words are stored. So long runs cost nothing: an IPv6 /64 less three addresses is a few dozen words.
"""

from collections.abc import Iterable

_SHIFT = 8
_WIDTH = 1 << _SHIFT
_MASK = _WIDTH - 1
_FULL = (1 << _WIDTH) - 1


class Bitmap:
    """A set of integers from 0 to `size - 1`."""

    def __init__(self, size: int, *, full: Iterable[tuple[int, int]] = ()) -> None:
        """Start with these runs as members, first and last included."""
        self.size = size
        depth = max(1, -(-(size - 1).bit_length() // _SHIFT))
        self._levels: tuple[dict[int, int], ...] = tuple({} for _ in range(depth))  # leaves first
        for first, last in _joined(full):
            self._fill(first, last)

    def __contains__(self, number: int) -> bool:
        """Return whether the bit of the leaf, or of a full parent, is set."""
        for words in self._levels:
            if words.get(number >> _SHIFT, 0) >> (number & _MASK) & 1:
                return True
            number >>= _SHIFT
        return False

    @property
    def count(self) -> int:
        """How many numbers are members."""
        return sum(
            word.bit_count() << (_SHIFT * level) for level, words in enumerate(self._levels) for word in words.values()
        )

    def add(self, number: int) -> None:
        """Add a number that is not a member."""
        top = self._levels[-1]
        for words in self._levels:
            at = number >> _SHIFT
            word = words.get(at, 0) | 1 << (number & _MASK)
            if word != _FULL or words is top:
                words[at] = word
                return
            del words[at]
            number = at

    def discard(self, number: int) -> None:
        """Remove a member."""
        for words in self._levels:
            at, bit = number >> _SHIFT, 1 << (number & _MASK)
            word = words.get(at, 0)
            if word & bit:
                words[at] = word ^ bit
                if word == bit:
                    del words[at]
                return
            # a parent marks this word as full: store it, full except for the path to the number
            words[at] = _FULL ^ bit
            number = at

    def first_absent(self) -> int | None:
        """Return the lowest number that is not a member, or None."""
        number = 0
        for words in reversed(self._levels):
            word = words.get(number, 0)
            gap = (~word & (word + 1)).bit_length() - 1
            number = number << _SHIFT | gap
        return number if number < self.size else None

    def _fill(self, first: int, last: int) -> None:
        """Set the partial words at both ends of a run here, and the full words between them one level up."""
        top = self._levels[-1]
        for words in self._levels:
            if first & _MASK or words is top:
                end = min(last, first | _MASK)
                _set(words, first, end)
                first = end + 1
            if first <= last and last & _MASK != _MASK:
                begin = max(first, last & ~_MASK)
                _set(words, begin, last)
                last = begin - 1
            if first > last:
                return
            first, last = first >> _SHIFT, last >> _SHIFT


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs sorted, overlapping and adjacent ones merged."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _set(words: dict[int, int], first: int, last: int) -> None:
    at = first >> _SHIFT
    words[at] = words.get(at, 0) | (2 << (last & _MASK)) - (1 << (first & _MASK))
