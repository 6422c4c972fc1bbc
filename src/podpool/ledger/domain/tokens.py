"""Tokens: who may call, and for whom.

A token is `podpool_ID_SECRET`. The ID finds its row, whose digest is compared in constant time; the same work is done
when there is no such row. A cluster's token speaks for one cluster: the one that it was made for, or that it first
spoke for. It cannot first speak for a cluster that has a token already.
"""

import hashlib
import hmac
import random
from collections.abc import Mapping

from msgspec.structs import replace

from podpool.ledger.admin_messages import NewToken, Token
from podpool.ledger.domain.convert import timestamp
from podpool.ledger.errors import Conflict, Forbidden, Invalid, NotFound
from podpool.ledger.storage.rows import TokenRow
from podpool.ledger.storage.store import Books

_NOBODY = TokenRow(id="", name="", digest=bytes(32), made=0.0, revoked=True)
_LONGEST_NAME = 253


def new_secret(rng: random.Random) -> str:
    """Draw a token that nobody has."""
    return f"podpool_{rng.getrandbits(48):012x}_{rng.getrandbits(256):064x}"


def identify(rows: Mapping[str, TokenRow], secret: str) -> TokenRow | None:
    """Find whose token this is, if anybody's."""
    row = rows.get(_id_of(secret), _NOBODY)
    good = hmac.compare_digest(_digest(secret), row.digest)
    return row if good and not row.revoked else None


def create_token(books: Books, new: NewToken, *, secret: str, wall: float) -> Token:
    """Let somebody call; the secret is told in this answer and never again."""
    if not 0 < len(new.name) <= _LONGEST_NAME:
        raise Invalid(f"a token's name must have 1 to {_LONGEST_NAME} letters", field="name")
    if new.cluster is not None and (new.admin or not new.cluster):
        raise Invalid("an admin token speaks for no cluster, and a cluster has a UID", field="cluster")
    if any(row.name == new.name and not row.revoked for row in books.tokens()):
        raise Conflict(f"there is a token {new.name} already: revoke it, or choose another name", field="name")
    row = TokenRow(
        id=_id_of(secret),
        name=new.name,
        digest=_digest(secret),
        made=wall,
        admin=new.admin,
        cluster=new.cluster,
    )
    books.advance()
    books.put_token(row)
    books.log(at=wall, cluster=new.cluster or "", kind=f"token {new.name} made", events=())
    return replace(shown(row), secret=secret)


def accept_admin(books: Books, secret: str, *, wall: float) -> None:
    """Let the admin token that lies beside the books call, whatever the books say of it."""
    row = books.token(_id_of(secret))
    if row is None or row.revoked or row.digest != _digest(secret):
        books.advance()
        made = TokenRow(
            id=_id_of(secret), name=f"admin-{_id_of(secret)}", digest=_digest(secret), made=wall, admin=True
        )
        books.put_token(made)
        books.log(at=wall, cluster="", kind=f"token {made.name} accepted", events=())


def revoke_token(books: Books, name: str, *, wall: float) -> Token:
    """Let somebody call no longer."""
    row = next((each for each in books.tokens() if name in (each.name, each.id) and not each.revoked), None)
    if row is None:
        raise NotFound(f"there is no token {name} that is not revoked", field="token")
    ended = replace(row, revoked=True)
    books.advance()
    books.put_token(ended)
    books.log(at=wall, cluster=row.cluster or "", kind=f"token {row.name} revoked", events=())
    return shown(ended)


def bind_token(books: Books, id_: str, cluster: str, *, wall: float) -> TokenRow:
    """Let a token speak for a cluster from its first use on."""
    row = books.token(id_) or _NOBODY
    if row.cluster == cluster:
        return row
    others = [each.name for each in books.tokens() if each.cluster == cluster and not each.revoked]
    if row.cluster is not None or row.revoked or row.admin or others:
        raise Forbidden(
            f"token {row.name} may not speak for cluster {cluster}: ask for one that was made for it", field="cluster"
        )
    bound = replace(row, cluster=cluster)
    books.advance()
    books.put_token(bound)
    books.log(at=wall, cluster=cluster, kind=f"token {row.name} bound", events=())
    return bound


def shown(row: TokenRow) -> Token:
    """Show a token without its secret."""
    return Token(
        id=row.id,
        name=row.name,
        made=timestamp(row.made),
        admin=row.admin,
        cluster=row.cluster,
        revoked=row.revoked,
    )


def _id_of(secret: str) -> str:
    return "_".join(secret.split("_")[1:2])


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
