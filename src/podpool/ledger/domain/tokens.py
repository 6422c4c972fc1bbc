"""Tokens: authentication of callers, and the cluster that each is bound to.

A token is `podpool_ID_SECRET`. The ID finds its row, whose digest is compared in constant time; a missing row costs
the same. A cluster's token is bound to one cluster: the one it was created for, or that of its first use. The first
use cannot bind it to a cluster that has a token already.
"""

import hashlib
import hmac
import random
from collections.abc import Mapping

from msgspec.structs import replace

from podpool.ledger.admin_messages import CreateTokenRequest, TokenInfo
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound

_NO_TOKEN = TokenRow(id="", name="", digest=bytes(32), created_at=0.0, revoked=True)
_MAX_NAME_LENGTH = 253


def new_secret(rng: random.Random) -> str:
    """Return a new random token."""
    return f"podpool_{rng.getrandbits(48):012x}_{rng.getrandbits(256):064x}"


def identify(rows: Mapping[str, TokenRow], secret: str) -> TokenRow | None:
    """Return the row of a valid token."""
    row = rows.get(_id_of(secret), _NO_TOKEN)
    valid = hmac.compare_digest(_digest(secret), row.digest)
    return row if valid and not row.revoked else None


def create_token(repo: Repository, request: CreateTokenRequest, *, secret: str, time: float) -> TokenInfo:
    """Create a token; the secret is returned this once."""
    if not 0 < len(request.name) <= _MAX_NAME_LENGTH:
        raise Invalid(f"the token's name must have 1 to {_MAX_NAME_LENGTH} characters", field="name")
    if request.cluster is not None and (request.admin or not request.cluster):
        raise Invalid("an admin token has no cluster, and a cluster's UID is not empty", field="cluster")
    if any(row.name == request.name and not row.revoked for row in repo.tokens()):
        raise Conflict(f"token {request.name} exists: revoke it, or choose another name", field="name")
    row = TokenRow(
        id=_id_of(secret),
        name=request.name,
        digest=_digest(secret),
        created_at=time,
        admin=request.admin,
        cluster=request.cluster,
    )
    _put(repo, row, "created", time=time)
    return replace(token_info(repo, row), secret=secret)


def accept_admin(repo: Repository, secret: str, *, time: float) -> bool:
    """Make the admin token beside the database valid; returns False if it was revoked, which stays so."""
    id_ = _id_of(secret)
    row = repo.token(id_)
    if row is not None and row.revoked:
        return False
    if row is None or row.digest != _digest(secret):
        admin = TokenRow(id=id_, name=f"admin-{id_}", digest=_digest(secret), created_at=time, admin=True)
        _put(repo, admin, "accepted", time=time)
    return True


def revoke_token(repo: Repository, name: str, *, time: float) -> TokenInfo:
    """Revoke a token, by its name or ID."""
    row = next((each for each in repo.tokens() if name in (each.name, each.id) and not each.revoked), None)
    if row is None:
        raise NotFound(f"there is no valid token {name}", field="token")
    revoked = replace(row, revoked=True)
    _put(repo, revoked, "revoked", time=time)
    return token_info(repo, revoked)


def bind_token(repo: Repository, id_: str, cluster: str, *, time: float) -> TokenRow:
    """Bind a token to a cluster on its first use."""
    row = repo.token(id_) or _NO_TOKEN
    if row.cluster == cluster:
        return row
    others = [each.name for each in repo.tokens() if each.cluster == cluster and not each.revoked]
    if row.cluster is not None or row.revoked or row.admin or others:
        message = f"token {row.name} cannot be bound to cluster {cluster}: create one for this cluster"
        raise Forbidden(message, field="cluster")
    bound = replace(row, cluster=cluster)
    _put(repo, bound, "bound", time=time)
    return bound


def token_info(repo: Repository, row: TokenRow) -> TokenInfo:
    """Return a token without its secret."""
    return TokenInfo(
        id=row.id,
        name=row.name,
        created_at=timestamp(repo, row.created_at),
        admin=row.admin,
        cluster=row.cluster,
        revoked=row.revoked,
    )


def _put(repo: Repository, row: TokenRow, change: str, *, time: float) -> None:
    repo.advance_revision()
    repo.put_token(row)
    repo.log(at=time, cluster=row.cluster or "", kind=f"token {row.name} {change}", events=())


def _id_of(secret: str) -> str:
    return "_".join(secret.split("_")[1:2])


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
