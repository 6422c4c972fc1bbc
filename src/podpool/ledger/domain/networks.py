"""The networks that a request means: each is a shard of the database, with terms and a writer of its own.

A network exists from its first subnet on, and for ever: the terms of its clusters must not be forgotten.
"""

from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.errors import Invalid, NotFound
from podpool.ledger.messages import SubnetName


class KnownNetworks:
    """The networks of a database, as far as they were read."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._names: frozenset[str] = frozenset()

    async def names(self) -> list[str]:
        """Return all networks."""
        self._names = frozenset(await self._store.query(_names))
        return sorted(self._names)

    async def check_subnet(self, name: SubnetName) -> None:
        """Raise NotFound for a subnet of an unknown network."""
        if name.network not in self._names and name.network not in await self.names():
            raise NotFound(f"there is no subnet {name}", field="subnet")

    async def existing(self, network: str) -> str:
        """Return the network of a request, which may be empty if there is only one; raises an error without one."""
        if not network and len(self._names) == 1:
            return next(iter(self._names))
        if network in self._names:
            return network
        names = await self.names()
        if network in names:
            return network
        if network:
            raise NotFound(f"there is no network {network}: create its first subnet", field="network")
        if len(names) == 1:
            return names[0]
        if not names:
            raise NotFound("the ledger has no network yet: create a subnet", field="network")
        raise Invalid(f"the ledger has {len(names)} networks: name the one that is meant", field="network")


def _names(repo: Repository) -> list[str]:
    return repo.networks()
