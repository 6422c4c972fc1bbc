"""Tokens: authentication of callers, and the cluster that each is bound to.

A token is `podpool_ID_SECRET`. The ID finds its row, whose digest is compared in constant time; a missing row costs
the same. A cluster's token is bound to one cluster: the one it was created for, or that of its first use. The first
use cannot bind it to a cluster that has a token already.

A rotation creates a second token of the same name, cluster and scope; the first stays valid for an overlap. A token is
valid until it is revoked, or until it expires.
"""

import hashlib
import hmac
import random
from collections.abc import Mapping

from msgspec.structs import replace

from podpool.ledger.admin_messages import CreateTokenRequest, RotateTokenRequest, TokenInfo
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.quota import check_limits
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.domain.token_scope import check_entries
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound
from podpool.ledger.messages import TokenLimits

_NO_TOKEN = TokenRow(id="", name="", digest=bytes(32), created_at=0.0, revoked=True)
_MAX_NAME_LENGTH = 253
_MAX_LIFETIME = 100 * 365 * 86_400.0
_MAX_TOKENS = 1_000
"""Valid tokens, and as many others: each replica reads all of them."""


def new_secret(rng: random.Random) -> str:
    """Return a new random token."""
    return f"podpool_{rng.getrandbits(48):012x}_{rng.getrandbits(256):064x}"


def identify(rows: Mapping[str, TokenRow], secret: str) -> TokenRow | None:
    """Return the row of a valid token."""
    row = rows.get(_id_of(secret), _NO_TOKEN)
    valid = hmac.compare_digest(_digest(secret), row.digest)
    return row if valid and not row.revoked else None


def is_valid(row: TokenRow, *, time: float) -> bool:
    """Whether a token is neither revoked nor expired."""
    return not row.revoked and (row.expires_at is None or time < row.expires_at)


def valid_tokens(repo: Repository, *, time: float) -> list[TokenRow]:
    """Return all tokens that are neither revoked nor expired."""
    return [row for row in repo.tokens() if is_valid(row, time=time)]


def create_token(repo: Repository, request: CreateTokenRequest, *, secret: str, time: float) -> TokenInfo:
    """Create a token; the secret is returned this once."""
    if not 0 < len(request.name) <= _MAX_NAME_LENGTH:
        raise Invalid(f"the token's name must have 1 to {_MAX_NAME_LENGTH} characters", field="name")
    if request.cluster is not None and (request.admin or not request.cluster):
        raise Invalid("an admin token has no cluster, and a cluster's UID is not empty", field="cluster")
    _check_admin(request, admin=request.admin)
    if any(row.name == request.name for row in valid_tokens(repo, time=time)):
        raise Conflict(f"token {request.name} exists: rotate or revoke it, or choose another name", field="name")
    row = TokenRow(
        id=_id_of(secret),
        name=request.name,
        digest=_digest(secret),
        created_at=time,
        admin=request.admin,
        cluster=request.cluster,
        expires_at=_expiry(request.lifetime, time=time),
        scope=check_entries(request.scope),
        limits=check_limits(request.limits),
    )
    return _add(repo, row, "created", secret=secret, time=time)


def rotate_token(repo: Repository, name: str, request: RotateTokenRequest, *, secret: str, time: float) -> TokenInfo:
    """Create a token like another one, which stays valid for the overlap; the secret is returned this once."""
    if not 0 <= request.overlap <= _MAX_LIFETIME:
        raise Invalid(f"overlap {request.overlap}: must be from 0 to {_MAX_LIFETIME:g} seconds", field="overlap")
    former = _named(repo, name, time=time)
    latest = max(former, key=lambda row: (row.created_at, row.id))
    if not latest.admin and latest.cluster is None:
        unbound = (
            f"token {latest.name} was not used yet, so that its cluster is not known: revoke it, and create another"
        )
        raise Conflict(unbound, field="token")
    _check_admin(request, admin=latest.admin)
    end = time + request.overlap
    for row in former:
        if row.expires_at is None or row.expires_at > end:
            repo.put_token(replace(row, expires_at=end))
    row = replace(
        latest,
        id=_id_of(secret),
        digest=_digest(secret),
        created_at=time,
        expires_at=_expiry(request.lifetime, time=time),
        scope=latest.scope if request.scope is None else check_entries(request.scope),
        limits=latest.limits if request.limits is None else check_limits(request.limits),
    )
    return _add(repo, row, "rotated", secret=secret, time=time)


def accept_token(repo: Repository, secret: str, *, admin: bool, time: float) -> bool:
    """Make a token from a file valid; returns False if it was revoked or has expired."""
    id_ = _id_of(secret)
    row = repo.token(id_)
    if row is not None and not is_valid(row, time=time):
        return False
    if row is None or row.digest != _digest(secret):
        name = f"{'admin' if admin else 'cluster'}-{id_}"
        accepted = TokenRow(id=id_, name=name, digest=_digest(secret), created_at=time, admin=admin)
        _put(repo, accepted, "accepted", time=time)
    return True


def revoke_token(repo: Repository, name: str, *, time: float) -> TokenInfo:
    """Revoke a token by its ID, or all tokens of a name; returns the latest of them."""
    revoked = [replace(row, revoked=True) for row in _named(repo, name, time=time)]
    for row in revoked:
        _put(repo, row, "revoked", time=time)
    return token_info(repo, max(revoked, key=lambda row: (row.created_at, row.id)), time=time)


def retire_tokens_and_pods(repo: Repository, cluster: str, *, time: float) -> int:
    """Revoke the tokens of a destroyed cluster, and end its Pods; returns how many tokens."""
    repo.end_pod_usages(cluster, until=time)  # so that they are trimmed with the history
    revoked = [row for row in repo.tokens() if row.cluster == cluster and not row.revoked]
    for token in revoked:
        _put(repo, replace(token, revoked=True), "revoked", time=time)
    return len(revoked)


def bind_token(repo: Repository, id_: str, cluster: str, *, time: float) -> TokenRow:
    """Bind a token to a cluster on its first use."""
    row = repo.token(id_) or _NO_TOKEN
    if row.cluster == cluster:
        return row
    remedy = f"let an administrator run `podpool ledger token create NAME --cluster {cluster}`"
    if row.cluster is not None or row.admin or not is_valid(row, time=time):
        raise Forbidden(f"token {row.name} cannot be bound to cluster {cluster}: {remedy}", field="cluster")
    others = sorted(each.name for each in valid_tokens(repo, time=time) if each.cluster == cluster)
    if others:
        taken = f"cluster {cluster} has token {others[0]}, so the first use of token {row.name} does not bind it"
        raise Forbidden(f"{taken}: {remedy}", field="cluster")
    bound = replace(row, cluster=cluster)
    _put(repo, bound, "bound", time=time)
    return bound


def token_info(repo: Repository, row: TokenRow, *, time: float) -> TokenInfo:
    """Return a token without its secret."""
    return TokenInfo(
        id=row.id,
        name=row.name,
        created_at=timestamp(repo, row.created_at),
        admin=row.admin,
        cluster=row.cluster,
        revoked=row.revoked,
        expires_at=None if row.expires_at is None else timestamp(repo, row.expires_at),
        expired=not row.revoked and not is_valid(row, time=time),
        scope=row.scope,
        limits=row.limits,
    )


def _check_admin(request: CreateTokenRequest | RotateTokenRequest, *, admin: bool) -> None:
    if admin and request.scope is not None:
        raise Invalid("an admin token has no scope: it manages all networks", field="scope")
    if admin and request.limits not in (None, TokenLimits()):
        raise Invalid("an admin token has no limits: it holds no addresses", field="limits")


def _named(repo: Repository, name: str, *, time: float) -> list[TokenRow]:
    """Return the valid tokens of a name, or the one with this ID."""
    valid = valid_tokens(repo, time=time)
    found = [row for row in valid if row.id == name] or [row for row in valid if row.name == name]
    if not found:
        raise NotFound(f"there is no valid token {name}", field="token")
    return found


def _expiry(lifetime: float | None, *, time: float) -> float | None:
    if lifetime is None:
        return None
    if not 0 < lifetime <= _MAX_LIFETIME:
        raise Invalid(f"lifetime {lifetime}: must be above 0, and at most {_MAX_LIFETIME:g} seconds", field="lifetime")
    return time + lifetime


def _add(repo: Repository, row: TokenRow, change: str, *, secret: str, time: float) -> TokenInfo:
    """Write a new token; the oldest of those that are not valid any more are deleted."""
    rows = repo.tokens()
    valid = [each for each in rows if is_valid(each, time=time)]
    if len(valid) >= _MAX_TOKENS:
        raise Conflict(
            f"there are {len(valid)} valid tokens, the maximum: revoke those that are not used", field="name"
        )
    invalid = [each for each in rows if not each.admin and not is_valid(each, time=time)]
    invalid.sort(key=lambda each: each.created_at)  # a revoked admin token in a file must stay revoked
    for each in invalid[: max(0, len(invalid) - _MAX_TOKENS)]:
        repo.delete_token(each.id)
    _put(repo, row, change, time=time)
    return replace(token_info(repo, row, time=time), secret=secret)


def _put(repo: Repository, row: TokenRow, change: str, *, time: float) -> None:
    repo.advance_revision()
    repo.put_token(row)
    repo.log(at=time, cluster=row.cluster or "", kind=f"token {row.name} {change}", events=())


def _id_of(secret: str) -> str:
    return "_".join(secret.split("_")[1:2])


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
