"""The file of `podpool ledger apply`: its subnets and tokens, checked with the line of each error. Pure."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from podpool.cli.ledger_file.located_yaml import Located, read_located
from podpool.controller.settings import parse_subnet
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_count
from podpool.core.ranges import parse_prefix, parse_range
from podpool.core.settings import FORMATS, Settings, settings_from_strings
from podpool.ledger.messages import SubnetName, SubnetSpec, TokenLimits

SUBNET_SETTINGS = tuple(name for name in FORMATS if name in SubnetSpec.__struct_fields__)
"""Settings that a subnet has."""
LIMITS = TokenLimits.__struct_fields__
"""Fields of a token's limits."""


class WantedSubnet(msgspec.Struct, frozen=True, kw_only=True):
    """A subnet of the file."""

    name: SubnetName
    cidrs: tuple[str, ...]
    """The first, and those beside it."""
    gateway: str | None = None
    exclude: tuple[str, ...] = ()
    draining: bool = False
    settings: Settings = Settings()
    at: Mapping[str, Located]
    """Its fields, for errors."""


class WantedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token of the file."""

    name: str
    allow: tuple[str, ...] | None = None
    cluster: str | None = None
    limits: TokenLimits = TokenLimits()
    secret_file: str = ""
    """Where its secret is written when it is created or rotated."""
    at: Located


class LedgerFile(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file. A list that is missing is not compared with the ledger."""

    subnets: tuple[WantedSubnet, ...] | None = None
    tokens: tuple[WantedToken, ...] | None = None


def parse_ledger_file(content: bytes, *, file: str) -> LedgerFile:
    """Parse and check a file. Raises `InvalidInput` with field and line."""
    fields = read_located(content, file=file).fields("subnets", "tokens")
    subnets = [_subnet(each) for each in fields["subnets"].items()] if "subnets" in fields else None
    tokens = [_token(each) for each in fields["tokens"].items()] if "tokens" in fields else None
    _require_distinct([(str(each.name), each.at["name"]) for each in subnets or ()])
    _require_distinct([(each.name, each.at) for each in tokens or ()])
    return LedgerFile(
        subnets=None if subnets is None else tuple(subnets), tokens=None if tokens is None else tuple(tokens)
    )


def _require_distinct(named: list[tuple[str, Located]]) -> None:
    seen = set[str]()
    for name, at in named:
        if name in seen:
            raise at.error(f"{name} is given twice")
        seen.add(name)


def _subnet(item: Located) -> WantedSubnet:
    names = ("name", "cidr", "additional_cidrs", "gateway", "exclude", "draining", "settings")
    fields = item.fields(*names, required=("name", "cidr"))
    settings = fields["settings"].fields(*SUBNET_SETTINGS, "cooldown") if "settings" in fields else {}
    with _at(fields["name"]):
        name = parse_subnet(fields["name"].text(), what="name")
    cidrs = [fields["cidr"], *(fields["additional_cidrs"].items() if "additional_cidrs" in fields else ())]
    for each in cidrs:
        with _at(each):
            parse_prefix(each.text())
    excluded = list(fields["exclude"].items()) if "exclude" in fields else []
    for each in excluded:
        with _at(each):
            parse_prefix(each.text()) if "/" in each.text() else parse_range(each.text())
    if "gateway" in fields:
        with _at(fields["gateway"]):
            parse_address(fields["gateway"].text())
    with _at(fields.get("settings", item)):
        parsed = settings_from_strings({key: each.text() for key, each in settings.items()})
    return WantedSubnet(
        name=name,
        cidrs=tuple(each.text() for each in cidrs),
        gateway=fields["gateway"].text() if "gateway" in fields else None,
        exclude=tuple(each.text() for each in excluded),
        draining=fields["draining"].boolean() if "draining" in fields else False,
        settings=parsed,
        at={"name": item, **fields},
    )


def _token(item: Located) -> WantedToken:
    fields = item.fields("name", "allow", "cluster", "secret_file", *LIMITS, required=("name",))
    limits = {name: _count(fields[name]) for name in LIMITS if name in fields}
    allow = tuple(each.text() for each in fields["allow"].items()) if "allow" in fields else None
    return WantedToken(
        name=fields["name"].text(),
        allow=allow,
        cluster=fields["cluster"].text() if "cluster" in fields else None,
        limits=TokenLimits(**limits),
        secret_file=fields["secret_file"].text() if "secret_file" in fields else "",
        at=item,
    )


def _count(field: Located) -> int:
    with _at(field):
        return parse_count(field.text(), what="count")


@contextmanager
def _at(place: Located) -> Iterator[None]:
    """Add file and line to the errors of parsers."""
    try:
        yield
    except InvalidInput as error:
        what = "" if error.what in {"name", "range", "address", "count"} else f"{error.what} "
        raise place.error(f"{what}{error.reason}") from None
