"""What a person asks a running ledger: subnets, tokens, clusters, history, recovery."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from podpool.cli.context import STAGE, on_stage
from podpool.cli.ledger_connection import token_in, trust
from podpool.cli.options import Asked
from podpool.cli.output import Sheet, Teller
from podpool.cli.spec import Output
from podpool.cli.tables import past_sheet
from podpool.controller.settings import parse_subnet
from podpool.core.quantities import show_share
from podpool.core.settings import parse_settings
from podpool.ledger import admin_messages as f
from podpool.ledger import messages as m
from podpool.ledger.client import LedgerClient, Patience
from podpool.runtime import entropy
from podpool.runtime.http import HttpTransport

T = TypeVar("T")
Parts = Iterable[Sheet | str]
_NAME = "NETWORK.SUBNET"


class Desk(msgspec.Struct, frozen=True):
    """Where the ledger is, who asks, and how it is told."""

    ledger: str
    token_file: str
    ca_file: str
    output: str
    no_color: str

    def ask(self, question: Callable[[LedgerClient], Awaitable[T]], tell: Callable[[T], Parts]) -> None:
        """Ask, and tell the answer."""
        asked = Asked(
            ledger=self.ledger,
            ledger_token_file=self.token_file,
            ledger_ca_file=self.ca_file,
            output=Output(self.output),
            no_color=bool(self.no_color),
        )
        teller, chosen = Teller(asked), on_stage(asked)
        if chosen != asked:
            teller.remark(f"{STAGE}; --ledger names another ledger")
        answer = asyncio.run(_asked(chosen, question))
        teller.answer(answer, *tell(answer))


async def _asked(asked: Asked, question: Callable[[LedgerClient], Awaitable[T]]) -> T:
    road = HttpTransport(asked.ledger, tls=trust(asked.ledger_ca_file))
    token, rng = token_in(asked.ledger_token_file), entropy.system()
    try:
        return await question(LedgerClient(road, token=token, patience=Patience(), rng=rng))
    finally:
        await road.close()


def create_subnet(*, network_subnet: str, cidr: str, gateway: str, keep_back: str, numbers: str, **desk: str) -> None:
    """Make a subnet, or find that it is there."""
    name, chosen = parse_subnet(network_subnet, what=_NAME), parse_settings(numbers)
    wanted = m.NewSubnet(
        network=name.network,
        name=name.name,
        cidr=cidr,
        gateway=gateway or None,
        keep_back=_words(keep_back),
    ).with_settings(chosen)
    Desk(**desk).ask(lambda client: client.create_subnet(wanted), _one_subnet)


def list_subnets(**desk: str) -> None:
    """Show all subnets."""
    Desk(**desk).ask(lambda client: client.subnets(), _many_subnets)


def show_subnet(*, network_subnet: str, **desk: str) -> None:
    """Show a subnet, and who holds it."""
    name = parse_subnet(network_subnet, what=_NAME)
    Desk(**desk).ask(lambda client: client.details(name), _details)


def grow_subnet(*, network_subnet: str, cidr: str, keep_back: str, **desk: str) -> None:
    """Give a subnet more addresses."""
    name, growth = parse_subnet(network_subnet, what=_NAME), m.Growth(cidr=cidr, keep_back=_words(keep_back))
    Desk(**desk).ask(lambda client: client.grow_subnet(name, growth), _one_subnet)


def drain_subnet(*, network_subnet: str, **desk: str) -> None:
    """Grant nothing in a subnet any more."""
    name = parse_subnet(network_subnet, what=_NAME)
    Desk(**desk).ask(lambda client: client.drain_subnet(name), _one_subnet)


def reopen_subnet(*, network_subnet: str, **desk: str) -> None:
    """Grant in a subnet again."""
    name = parse_subnet(network_subnet, what=_NAME)
    Desk(**desk).ask(lambda client: client.reopen_subnet(name), _one_subnet)


def delete_subnet(*, network_subnet: str, **desk: str) -> None:
    """Forget a subnet that is empty."""
    name = parse_subnet(network_subnet, what=_NAME)
    Desk(**desk).ask(lambda client: client.delete_subnet(name), lambda gone: [f"{gone.subnet} is no more"])


def create_token(*, name: str, cluster: str, admin: str, **desk: str) -> None:
    """Make a token, and print its secret alone: to be sent into a file."""
    new = f.NewToken(name=name, cluster=cluster or None, admin=admin == "yes")
    Desk(**desk).ask(lambda client: client.create_token(new), lambda token: [token.secret or ""])


def list_tokens(**desk: str) -> None:
    """Show all tokens."""

    def tell(found: f.Tokens) -> Parts:
        rows = [(each.name, _role(each), each.made, _or_ok("revoked" * each.revoked), each.id) for each in found.tokens]
        return [Sheet(("NAME", "SPEAKS-FOR", "MADE", "STATE", "ID"), rows, wide=1)]

    Desk(**desk).ask(lambda client: client.tokens(), tell)


def revoke_token(*, name: str, **desk: str) -> None:
    """End a token."""
    Desk(**desk).ask(lambda client: client.revoke_token(name), lambda token: [f"{token.name} is revoked"])


def list_clusters(**desk: str) -> None:
    """Show all clusters."""
    Desk(**desk).ask(lambda client: client.clusters(), _clusters)


def retire_cluster(*, cluster: str, **desk: str) -> None:
    """Take back what a destroyed cluster held."""

    def tell(done: f.Retired) -> Parts:
        return [f"{done.containers} containers closed, {done.addresses} addresses rest, {done.tokens} tokens revoked"]

    Desk(**desk).ask(lambda client: client.retire(cluster), tell)


def confirm_loss(*, cluster: str, **desk: str) -> None:
    """Agree that the nodes which a cluster lost are lost."""
    Desk(**desk).ask(lambda client: client.confirm_loss(cluster), _clusters)


def address_history(*, address: str, at: str, cluster: str, **desk: str) -> None:
    """Tell who held an address."""
    Desk(**desk).ask(lambda client: client.history(address=address, at=at, cluster=cluster), _past)


def node_history(*, node: str, at: str, cluster: str, **desk: str) -> None:
    """Tell what a node held."""
    Desk(**desk).ask(lambda client: client.history(node=node, at=at, cluster=cluster), _past)


def pod_history(*, pod: str, at: str, cluster: str, **desk: str) -> None:
    """Tell what a Pod had; without a namespace what Pods of that name had."""
    namespace, _, name = pod.rpartition("/")
    Desk(**desk).ask(lambda client: client.pod_history(name, namespace=namespace, at=at, cluster=cluster), _past)


def recovery_status(**desk: str) -> None:
    """Tell whom the ledger waits for, and what must be settled."""
    Desk(**desk).ask(lambda client: client.recovery(), _recovery)


def excuse(*, cluster: str, **desk: str) -> None:
    """Wait for a cluster's list no longer."""
    Desk(**desk).ask(lambda client: client.excuse(cluster), _recovery)


def settle(*, network_subnet: str, address: str, container: str, **desk: str) -> None:
    """Give an address with two owners to one of them."""
    decision = m.Settle(subnet=parse_subnet(network_subnet, what=_NAME), address=address, container=container)
    Desk(**desk).ask(lambda client: client.settle(decision), _recovery)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _one_subnet(state: m.SubnetState) -> list[str]:
    networks = ", ".join((state.cidr, *state.further))
    mood = "".join(f"; {word}" for word in _moods(state))
    return [f"{state.subnet}: {networks} with {state.capacity} addresses, {state.reserved} of them reserved{mood}"]


def _moods(state: m.SubnetState) -> list[str]:
    full = ["full"] if state.waiting else []
    return full + [word for word in ("exhausted", "frozen", "draining") if getattr(state, word)]


def _many_subnets(found: m.Subnets) -> Parts:
    rows = [
        (
            each.subnet,
            each.cidr,
            each.capacity,
            each.reserved,
            each.resting,
            each.waiting,
            _scaler(each),
            _or_ok(",".join(_moods(each))),
            each.projected,
            each.kept_back,
            each.gateway or "-",
        )
        for each in found.subnets
    ]
    head = ("SUBNET", "CIDR", "CAPACITY", "RESERVED", "RESTING", "WAITING", "BATCH/BUFFER", "STATE")
    return [Sheet((*head, "PROJECTED", "KEPT-BACK", "GATEWAY"), rows, wide=3)]


def _or_ok(words: str) -> str:
    return words or "ok"


def _scaler(state: m.SubnetState) -> str:
    return f"{state.scaler.batch}/{show_share(state.scaler.buffer)}"


def _details(found: f.SubnetDetails) -> Parts:
    state = found.state
    told = [
        *_one_subnet(state),
        f"gateway {state.gateway or 'none'}, kept back {state.kept_back}, for primaries {state.reserved_for_primaries}",
        f"resting {state.resting}, waiting {state.waiting}, wishing {state.wishing}, projected {state.projected}",
        f"batch and buffer {_scaler(state)}, cooldown in force {state.cooldown:g} s",
    ]
    rows = [(each.cluster, each.containers, each.held, each.waiting, each.wishing) for each in found.holders]
    return [*told, Sheet(("CLUSTER", "CONTAINERS", "HELD", "WAITING", "WISHING"), rows)] if rows else told


def _role(token: f.Token) -> str:
    return "admin" if token.admin else token.cluster or "whom it first speaks for"


def _clusters(found: f.Clusters) -> Parts:
    rows = [(each.id, each.containers, _trouble(each), each.term, ", ".join(each.tokens)) for each in found.clusters]
    return [Sheet(("CLUSTER", "CONTAINERS", "STATE", "TERM", "TOKENS"), rows, wide=2)]


def _trouble(cluster: f.Cluster) -> str:
    words = [f"braked since {cluster.braked}"] if cluster.braked else []
    return _or_ok(", ".join([*words, *["its list is awaited"] * cluster.awaited]))


def _past(found: f.History) -> Parts:
    if not (found.tenures or found.uses):
        return [f"nothing is known of it; the past is kept for {found.kept / 3600:g} h"]
    return [past_sheet(found.tenures, found.uses)]


def _recovery(state: m.Recovery) -> Parts:
    waits = [f"{each.subnet} waits for the list of cluster {each.cluster}" for each in state.awaited]
    claims = [
        f"{each.address} of {each.subnet} has two owners: containers {each.holder} and {each.claimant}"
        for each in state.alarms
    ]
    return [*waits, *claims] or ["nothing to recover"]
