"""A ledger's subnets and tokens as the file that `podpool ledger apply` reads. Pure."""

from collections.abc import Iterable
from typing import Any

from podpool.cli.ledger_file.document import LIMITS, SUBNET_SETTINGS
from podpool.core.settings import FORMATS, Settings
from podpool.ledger.admin_messages import SubnetDetails, TokenInfo


def exported(subnets: Iterable[SubnetDetails], tokens: Iterable[TokenInfo]) -> dict[str, Any]:
    """Return the file; tokens of administrators, and those that are no longer valid, are not in it."""
    named = [each for each in tokens if not (each.admin or each.revoked or each.expired)]
    unique = {each.name: each for each in sorted(named, key=age_order)}
    return {"subnets": [_subnet(each) for each in subnets], "tokens": [_token(each) for each in unique.values()]}


def age_order(token: TokenInfo) -> tuple[str, str]:
    """Return what sorts tokens of one name, the latest last: rotation limits the life of the former."""
    return token.created_at, token.expires_at or "~"


def _subnet(found: SubnetDetails) -> dict[str, Any]:
    state, spec, defaults = found.state, found.spec, Settings()
    excluded = [*spec.excluded_ranges, *(text for growth in found.growths for text in growth.excluded_ranges)]
    differing = [name for name in SUBNET_SETTINGS if getattr(spec, name) != getattr(defaults, name)]
    plain = {
        "name": str(state.subnet),
        "cidr": state.cidr,
        "additional_cidrs": list(state.additional_cidrs),
        "gateway": spec.gateway,
        "exclude": excluded,
        "draining": state.draining,
        "settings": {name: FORMATS[name].show(getattr(spec, name)) for name in differing},
    }
    return {name: each for name, each in plain.items() if each}


def _token(found: TokenInfo) -> dict[str, Any]:
    allow = None if found.scope is None else list(found.scope)
    limits = {name: getattr(found.limits, name) for name in LIMITS}
    plain = {"name": found.name, "cluster": found.cluster, "allow": allow, **limits}
    return {name: each for name, each in plain.items() if each is not None}
