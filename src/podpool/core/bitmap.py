"""A set of numbers below a size, which finds its lowest gap at once, however large and however full it is.

A tree of 256-bit words. A leaf's bit says that its number is in the set; a bit further up says that the whole child is
full. What must hold: a full child is not stored (its bit above says it all), nor is an empty word. So a long run of
either costs nothing: all of an IPv6 /64 but for three addresses is a few dozen words.
"""

from collections.abc import Iterable, Iterator

_SHIFT = 8
_WIDTH = 1 << _SHIFT
_MASK = _WIDTH - 1
_FULL = (1 << _WIDTH) - 1


class Bitmap:
    """Settings from 0 up to, not including, `size`."""

    def __init__(self, size: int, *, full: Iterable[tuple[int, int]] = ()) -> None:
        """Start with these runs in the set, first and last included."""
        self.size = size
        self.count = 0
        depth = max(1, -(-(size - 1).bit_length() // _SHIFT))
        self._levels: tuple[dict[int, int], ...] = tuple({} for _ in range(depth))  # leaves first
        for first, last in _joined(full):
            self.count += last - first + 1
            self._fill(first, last)

    def __contains__(self, number: int) -> bool:
        """Tell whether the leaf, or anything above it, says so."""
        for words in self._levels:
            if words.get(number >> _SHIFT, 0) >> (number & _MASK) & 1:
                return True
            number >>= _SHIFT
        return False

    def add(self, number: int) -> None:
        """Put a number in that is not in yet."""
        self.count += 1
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
        """Take a number out that is in."""
        self.count -= 1
        for words in self._levels:
            at, bit = number >> _SHIFT, 1 << (number & _MASK)
            word = words.get(at, 0)
            if word & bit:
                words[at] = word ^ bit
                if word == bit:
                    del words[at]
                return
            # a bit further up stands for this word: write it down, full but for the way to the number
            words[at] = _FULL ^ bit
            number = at

    def first_absent(self) -> int | None:
        """Find the lowest number that is not in the set."""
        number = 0
        for words in reversed(self._levels):
            word = words.get(number, 0)
            gap = (~word & (word + 1)).bit_length() - 1
            number = number << _SHIFT | gap
        return number if number < self.size else None

    def runs(self) -> list[tuple[int, int]]:
        """List the set as runs, first and last included, in order."""
        return _joined(
            (first << _SHIFT * level, ((last + 1) << _SHIFT * level) - 1)
            for level, words in enumerate(self._levels)
            for at, word in words.items()
            for first, last in _runs(word, at << _SHIFT)
        )

    def _fill(self, first: int, last: int) -> None:
        """Set the ragged ends of a run here, and what lies between them as whole words one level further up."""
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
    """Sort runs and join those that overlap or touch."""
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


def _runs(word: int, base: int) -> Iterator[tuple[int, int]]:
    """Cut a word into its runs of ones."""
    while word:
        first = (word & -word).bit_length() - 1
        word >>= first
        length = (~word & (word + 1)).bit_length() - 1
        yield base + first, base + first + length - 1
        word >>= length
        base += first + length
