"""Making and showing subnets."""

from msgspec.structs import replace

from podpool.core.errors import InvalidInput
from podpool.core.numbers import Numbers
from podpool.ledger.errors import Conflict, Invalid
from podpool.ledger.ground import ground_of
from podpool.ledger.judgement import rungs_of
from podpool.ledger.messages import NewSubnet
from podpool.ledger.rows import SubnetRow
from podpool.ledger.store import Books

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_NAME = 63


def create_subnet(books: Books, new: NewSubnet, *, wall: float) -> SubnetRow:
    """Make a subnet; the same again is the one that is there."""
    try:
        row = _checked(new)
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    there = books.subnet(row.name)
    if there is not None:
        if there.made != row.made:
            raise Conflict(f"there is a subnet {row.name} already, and it is another", field="name")
        return there
    for other in books.subnets(network=new.network):
        if other.ground.prefix.range.overlaps(row.ground.prefix.range):
            raise Conflict(f"{new.cidr} overlaps {other.made.cidr} of subnet {other.name}", field="cidr")
    row = books.add_subnet(replace(row, revision=books.advance()))
    # books that were restored may have lost this very subnet: who has not listed may have something in it
    awaited = dict.fromkeys(cluster for cluster, _, _ in books.awaited())
    books.await_lists((cluster, new.network, new.name) for cluster in awaited)
    books.log(at=wall, cluster="", kind=f"subnet {row.name} made", events=())
    return row


def _checked(new: NewSubnet) -> SubnetRow:
    """Check every field; a subnet that is made is a good one."""
    _check_name("network", new.network)
    _check_name("name", new.name)
    Numbers(
        batch=new.batch,
        buffer=new.buffer,
        upper=new.upper,
        lower=new.lower,
        cooldown=new.cooldown,
        cooldown_floor=new.cooldown_floor,
        kept_for_primaries=new.kept_for_primaries,
        step_up_margin=0,  # not this subnet's
    )
    ground_of(new.cidr, new.gateway, new.keep_back)
    row = SubnetRow(number=0, made=new)
    return SubnetRow(number=0, made=new, totals=(0,) * len(rungs_of(row)))


def _check_name(field: str, text: str) -> None:
    """Names become Kubernetes names, label values and parts of paths."""
    if not 0 < len(text) <= _LONGEST_NAME or not set(text) <= _LETTERS or text.strip("-") != text:
        rule = f"use at most {_LONGEST_NAME} lower-case letters, digits and dashes, no dash at either end"
        raise InvalidInput(field, text, rule)
