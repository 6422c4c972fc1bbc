"""A subnet as a map of its addresses: one letter per address, in order. Pure.

A subnet with more addresses than a map can show is returned sparsely: only addresses that are not free, written out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from podpool.core.addresses import Family, parse_address
from podpool.core.ranges import Prefix, RangeSet, parse_prefix, parse_range
from podpool.inspect.view_models import ViewModel
from podpool.ledger.admin_messages import Occupancy

MAX_CELLS = 65_536

FREE, EXCLUDED, PRIMARY, ASSIGNED, IDLE, COOLING_DOWN, OTHER_CLUSTERS = ".", "k", "p", "a", "i", "r", "o"


class Patch(ViewModel, frozen=True, kw_only=True):
    """Consecutive addresses or, with `texts`, individual ones."""

    first: str = ""
    cells: str
    """One letter per address."""
    owners: tuple[int, ...] = ()
    """For each address the index of its node in `nodes`, or -1; empty when no address has a node."""
    texts: tuple[str, ...] = ()


class AddressMap(ViewModel, frozen=True, kw_only=True):
    """Every address of a subnet."""

    revision: int
    nodes: tuple[str, ...] = ()
    patches: tuple[Patch, ...] = ()
    complete: bool = True


class _Cell(msgspec.Struct, frozen=True, gc=False):
    letter: str
    owner: int = -1


def address_map(message: Occupancy, *, used: Callable[[str], bool], cluster: str = "") -> AddressMap:
    """Build the map from the ledger's occupancy; `used` returns whether a Pod shows an address."""
    nodes: dict[str, int] = {}
    cells: dict[int, _Cell] = {}
    for occupant in message.occupants:
        ours = bool(occupant.node) and (not cluster or occupant.cluster == cluster)
        owner = nodes.setdefault(occupant.node, len(nodes)) if ours else -1
        for text in occupant.primaries:
            cells[parse_address(text).value] = _Cell(PRIMARY if ours else OTHER_CLUSTERS, owner)
        for text in occupant.secondaries:
            letter = (ASSIGNED if used(text) else IDLE) if ours else OTHER_CLUSTERS
            cells[parse_address(text).value] = _Cell(letter, owner)
    for each in message.cooling_down:
        cells[parse_address(each.address).value] = _Cell(COOLING_DOWN)
    prefixes = [parse_prefix(each) for each in message.cidrs]
    sparse = sum(each.range.size for each in prefixes) > MAX_CELLS
    patches = (_sparse(cells, prefixes[0].family),) if sparse else tuple(_whole(cells, prefixes, message.members))
    return AddressMap(revision=message.revision, nodes=tuple(nodes), patches=patches, complete=message.complete)


def _sparse(cells: Mapping[int, _Cell], family: Family) -> Patch:
    values = sorted(cells)
    return _patch([cells[each] for each in values], texts=map(family.text, values))


def _whole(cells: Mapping[int, _Cell], prefixes: Iterable[Prefix], members: Iterable[str]) -> Iterator[Patch]:
    given = RangeSet.of(map(parse_range, members))
    kept, free = _Cell(EXCLUDED), _Cell(FREE)
    for each in prefixes:
        values = range(each.range.first, each.range.last + 1)
        row = [cells.get(value) or (free if value in given else kept) for value in values]
        texts = map(each.family.text, values) if each.family is Family.V6 else ()  # a browser counts only IPv4
        yield _patch(row, first=each.family.text(each.range.first), texts=texts)


def _patch(cells: list[_Cell], *, first: str = "", texts: Iterable[str] = ()) -> Patch:
    owners = tuple(each.owner for each in cells)
    owners, letters = owners if any(each >= 0 for each in owners) else (), "".join(each.letter for each in cells)
    return Patch(first=first, cells=letters, owners=owners, texts=tuple(texts))
