"""Addresses that sandboxes may have whom the journal has forgotten, and how it is found out that nobody has them.

Two looks at least a minute apart must find that no Pod of the node shows the address, and that every Pod of the node
tells where it is: it shows an address, or has asked this agent for one, or has one of it. A Pod's address may be shown
only when its images have been pulled; until then any forgotten address may be that Pod's. Addresses of further
containers are never shown: they are free when every Pod has asked, or has its own. Where the journal names a holder, it
is right when that Pod shows the address.
"""

from collections.abc import Iterable

from podpool.agent.pool import Pool
from podpool.api.builtin import Pod

APART = 60.0
"""Seconds between two looks."""


class Recollection:
    """Remembers since when an address has had no Pod."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def look(self, pool: Pool, pods: Iterable[Pod], asked: set[str], *, now: float) -> tuple[str, ...]:
        """Look once; gives the grants that nobody has, or whose holder is who the journal says."""
        known = asked | {each.pod.key for each in pool.holdings.values()}
        living = [pod for pod in pods if pod.needs_address]
        strange = [pod for pod in living if not known & {pod.metadata.uid, pod.key}]
        silent = any(not pod.status.pod_ips for pod in strange)
        unasked = [
            pod for pod in living if not asked & {pod.metadata.uid, pod.key}
        ]  # who asked shows what it had before
        shown = {each.ip for pod in unasked for each in pod.status.pod_ips}
        clear = () if silent else [each for each in pool.lost() if each.address not in shown]
        nobodys = [each.id for each in clear if not (each.container and strange)]
        shows = {(pod.metadata.uid, each.ip) for pod in living for each in pod.status.pod_ips}
        held = [each for each in pool.holdings.values() if each.grant.id in pool.forgotten]
        right = [each.grant.id for each in held if (each.pod.uid, each.grant.address) in shows]
        self._since = {grant: self._since.get(grant, now) for grant in (*nobodys, *right)}
        return tuple(grant for grant, since in self._since.items() if since + APART <= now)
