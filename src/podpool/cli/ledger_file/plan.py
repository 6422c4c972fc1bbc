"""What to change in the ledger so that it is as in the file. Pure.

A subnet can be created, grown, drained, reopened and deleted; nothing else of it can be changed, because nodes hold its
addresses. A token can be created, or rotated to another scope.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from podpool.cli.ledger_file.document import LIMITS, SUBNET_SETTINGS, LedgerFile, WantedSubnet, WantedToken
from podpool.cli.ledger_file.export import age_order
from podpool.core.addresses import parse_address
from podpool.core.ranges import Prefix, Range, RangeSet, parse_prefix, parse_range
from podpool.core.settings import FORMATS
from podpool.ledger.admin_messages import SubnetDetails, TokenInfo
from podpool.ledger.messages import SubnetGrowth, SubnetSpec


class LedgerAction(enum.StrEnum):
    """What a step does."""

    CREATE = "create"
    GROW = "grow"
    DRAIN = "drain"
    REOPEN = "reopen"
    DELETE = "delete"
    CREATE_TOKEN = "create token"  # noqa: S105  a word, not a secret
    ROTATE_TOKEN = "rotate token"  # noqa: S105  the same
    REVOKE_TOKEN = "revoke token"  # noqa: S105  the same


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    action: LedgerAction
    name: str
    detail: str = ""
    spec: SubnetSpec | None = None
    growth: SubnetGrowth | None = None
    token: WantedToken | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All changes, in their order, and what is in the ledger only."""

    steps: tuple[Step, ...] = ()
    unlisted: tuple[str, ...] = ()
    """What `prune` would delete."""


def make_plan(
    file: LedgerFile, subnets: Mapping[str, SubnetDetails], tokens: Sequence[TokenInfo], *, prune: bool
) -> Plan:
    """Compare a file with the ledger. Raises `InvalidInput` for a difference that cannot be removed."""
    steps, unlisted = list[Step](), list[str]()
    if file.subnets is not None:
        for wanted in file.subnets:
            steps += _subnet_steps(wanted, subnets.get(str(wanted.name)))
        listed = {str(each.name) for each in file.subnets}
        unlisted += [f"subnet {name}" for name in subnets if name not in listed]
        removed = [each for name, each in subnets.items() if name not in listed]
        steps += [step for each in removed for step in _removal(each)] if prune else []
    if file.tokens is not None:
        valid = {
            each.name: each
            for each in sorted(tokens, key=age_order)
            if not (each.revoked or each.expired or each.admin)
        }
        for token in file.tokens:
            steps += _token_steps(token, valid.get(token.name))
        more = [name for name in valid if name not in {each.name for each in file.tokens}]
        unlisted += [f"token {name}" for name in more]
        steps += [Step(action=LedgerAction.REVOKE_TOKEN, name=name) for name in more] if prune else []
    return Plan(steps=tuple(steps), unlisted=() if prune else tuple(unlisted))


def _removal(found: SubnetDetails) -> Iterator[Step]:
    name = str(found.state.subnet)
    if not found.state.draining:
        yield Step(action=LedgerAction.DRAIN, name=name, detail="it is not in the file")
    if not found.state.network_containers and not found.state.reserved:
        yield Step(action=LedgerAction.DELETE, name=name, detail="it is not in the file, and empty")


def _subnet_steps(wanted: WantedSubnet, found: SubnetDetails | None) -> Iterator[Step]:
    name, (first, *others) = str(wanted.name), wanted.cidrs
    if found is None:
        spec = SubnetSpec(
            network=wanted.name.network,
            name=wanted.name.name,
            cidr=first,
            gateway=wanted.gateway,
            excluded_ranges=tuple(each for each in wanted.exclude if _is_inside(each, first)),
        ).with_settings(wanted.settings)
        yield Step(action=LedgerAction.CREATE, name=name, detail=first, spec=spec)
        yield from (_growth(wanted, name, each, []) for each in others)
        draining = False
    else:
        _require_same(wanted, found)
        yield from _growths(wanted, found)
        draining = found.state.draining
    if wanted.draining != draining:
        yield Step(action=LedgerAction.DRAIN if wanted.draining else LedgerAction.REOPEN, name=name)


def _growths(wanted: WantedSubnet, found: SubnetDetails) -> Iterator[Step]:
    present = [parse_prefix(each) for each in (found.state.cidr, *found.state.additional_cidrs)]
    desired = [parse_prefix(each) for each in wanted.cidrs]
    for each in present:
        if not any(_contains(other, each) for other in desired):
            reason = (
                f"the ledger has {each} in {wanted.name}: a subnet cannot shrink; create another one, and drain this"
            )
            raise wanted.at["cidr"].error(reason)
    old = list(present)
    for text, prefix in zip(wanted.cidrs, desired, strict=True):
        if prefix not in present:
            yield _growth(wanted, str(wanted.name), text, old)


def _growth(wanted: WantedSubnet, name: str, cidr: str, present: list[Prefix]) -> Step:
    new = [
        each for each in wanted.exclude if _is_inside(each, cidr) and not any(_is_within(each, one) for one in present)
    ]
    growth = SubnetGrowth(cidr=cidr, excluded_ranges=tuple(new))
    return Step(action=LedgerAction.GROW, name=name, detail=f"by {cidr}", growth=growth)


def _require_same(wanted: WantedSubnet, found: SubnetDetails) -> None:
    """Raise an error for a field that differs and cannot be changed."""
    spec, at = found.spec, wanted.at
    if _address(wanted.gateway) != _address(spec.gateway):
        raise _fixed(wanted, "gateway", spec.gateway or "none")
    shown = wanted.settings
    for name in SUBNET_SETTINGS:
        if getattr(shown, name) != getattr(spec, name):
            place = at.get("settings", at["name"])
            now = FORMATS[name].show(getattr(spec, name))
            wants = FORMATS[name].show(getattr(shown, name))
            raise place.error(f"{name} is {now} in the ledger and {wants} in the file, and cannot be changed")
    present = [parse_prefix(each) for each in (found.state.cidr, *found.state.additional_cidrs)]
    texts = (*spec.excluded_ranges, *(text for growth in found.growths for text in growth.excluded_ranges))
    inside = [each for each in wanted.exclude if any(_is_within(each, one) for one in present)]
    if _ranges(inside) != _ranges(texts):
        raise _fixed(wanted, "exclude", ", ".join(texts) or "nothing")


def _fixed(wanted: WantedSubnet, field: str, now: str) -> Exception:
    place = wanted.at.get(field, wanted.at["name"])
    return place.error(f"{field} of {wanted.name} is {now} in the ledger, and cannot be changed: create another subnet")


def _token_steps(wanted: WantedToken, found: TokenInfo | None) -> Iterator[Step]:
    if found is None:
        action, detail = LedgerAction.CREATE_TOKEN, ", ".join(wanted.allow or ("all subnets",))
    elif wanted.cluster is not None and wanted.cluster != found.cluster:
        raise wanted.at.error(f"token {wanted.name} is of cluster {found.cluster or '(none yet)'}: choose another name")
    elif wanted.allow is None and found.scope is not None:
        listed = f"token {wanted.name} may use {', '.join(found.scope)}"
        raise wanted.at.error(f"{listed}: list them with allow, or revoke the token first")
    elif changes := list(_token_changes(wanted, found)):
        action, detail = LedgerAction.ROTATE_TOKEN, "; ".join(changes)
    else:
        return
    if not wanted.secret_file:
        raise wanted.at.error(f"lacks secret_file, to which the secret of the new token {wanted.name} is written")
    yield Step(action=action, name=wanted.name, detail=detail, token=wanted)


def _token_changes(wanted: WantedToken, found: TokenInfo) -> Iterator[str]:
    """Yield what of a token differs, as text."""
    if wanted.allow is not None and set(wanted.allow) != set(found.scope or ()):
        before = "all subnets" if found.scope is None else ", ".join(found.scope)
        yield f"from {before} to {', '.join(wanted.allow)}"
    for name in LIMITS:
        before, after = getattr(found.limits, name), getattr(wanted.limits, name)
        if before != after:
            yield f"{name} from {_limit(before)} to {_limit(after)}"


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else str(value)


def _contains(outer: Prefix, inner: Prefix) -> bool:
    one, other = outer.range, inner.range
    return one.family is other.family and one.first <= other.first and other.last <= one.last


def _excluded(text: str) -> Range:
    return parse_prefix(text).range if "/" in text else parse_range(text)


def _is_within(text: str, prefix: Prefix) -> bool:
    inner, outer = _excluded(text), prefix.range
    return inner.family is outer.family and outer.first <= inner.first and inner.last <= outer.last


def _is_inside(text: str, cidr: str) -> bool:
    return _is_within(text, parse_prefix(cidr))


def _ranges(texts: Sequence[str]) -> tuple[Range, ...]:
    return RangeSet.of(map(_excluded, texts)).ranges


def _address(text: str | None) -> object:
    return None if text is None else parse_address(text)
