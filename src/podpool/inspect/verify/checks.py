"""Checks of the addresses of a self-test. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from podpool.api.azure import NodeNetworkConfig
from podpool.inspect.preflight.report import names
from podpool.inspect.verify.pods import FAILED_CHECK, PASSED, SKIPPED, VerifiedPod, VerifyCheck, VerifyPod


def result(check: str, problems: Sequence[str], passed: str) -> VerifyCheck:
    """Return a failed check with its problems, or that it passed."""
    if problems:
        return VerifyCheck(check=check, result=FAILED_CHECK, message=names(problems))
    return VerifyCheck(check=check, result=PASSED, message=passed)


def skipped(check: str, reason: str) -> VerifyCheck:
    """Return that a check was not made."""
    return VerifyCheck(check=check, result=SKIPPED, message=reason)


def check_started(
    wanted: Mapping[str, str], started: Sequence[VerifiedPod], seen: Mapping[str, VerifyPod]
) -> VerifyCheck:
    """Check that each Pod runs and has an address; `wanted` are nodes by Pod."""
    running = {each.name for each in started}
    problems = [
        f"{name} on {node}: {seen[name].problem if name in seen else 'not there'}"
        for name, node in wanted.items()
        if name not in running
    ]
    slowest = max((each.seconds for each in started), default=0.0)
    return result("addresses", problems, f"{len(started)} Pods have one, the last after {slowest:.1f} s")


def check_grants(started: Iterable[VerifiedPod], nncs: Iterable[NodeNetworkConfig]) -> VerifyCheck:
    """Check that the address of each Pod is a grant of its node."""
    granted = {
        each.metadata.name: {one.ip for nc in each.status.network_containers for one in nc.ip_assignments}
        for each in nncs
    }
    concerned = [each for each in started if each.node in granted]
    if not concerned:
        return skipped("grants", "no node has a NodeNetworkConfig: the Pods' default network is another plugin's")
    problems = [
        f"{each.name} on {each.node} has {', '.join(each.addresses)}"
        for each in concerned
        if granted[each.node].isdisjoint(each.addresses)
    ]
    return result("grants", problems, f"{len(concerned)} Pods have addresses that were granted to their nodes")


def check_unique(started: Iterable[VerifiedPod], all_pods: Iterable[VerifyPod]) -> VerifyCheck:
    """Check that no other Pod of the cluster has the address of one of the test's."""
    own = {address for each in started for address in each.addresses}
    counts = Counter(address for each in all_pods for address in set(each.addresses))
    twice = [address for address in sorted(own) if counts[address] > 1]
    return result("unique", twice, f"{len(own)} addresses have one Pod each")


def check_cooldown(
    before: Iterable[VerifiedPod], after: Iterable[VerifiedPod], *, elapsed: float, cooldown: float
) -> VerifyCheck:
    """Check that no address was assigned again within its cooldown; `elapsed` is since the deletion."""
    used = {address for each in before for address in each.addresses}
    again = sorted({address for each in after for address in each.addresses} & used)
    if not again:
        return result("cooldown", (), "no address of a deleted Pod was assigned to the next Pods")
    if elapsed < cooldown:
        problem = f"{names(again)} assigned again after {elapsed:.1f} s, cooldown {cooldown:g} s"
        return result("cooldown", (problem,), "")
    return skipped(
        "cooldown", f"the next Pods started after {elapsed:.1f} s, when the cooldown of {cooldown:g} s was over"
    )


def check_reachability(found: Mapping[tuple[str, str], bool | None]) -> VerifyCheck:
    """Check that every probe reached its Pod; keys are the node of the probe and the address."""
    problems = [
        f"{address} from {node}{'' if reached is False else ' (no result)'}"
        for (node, address), reached in found.items()
        if not reached
    ]
    return result(
        "reachability", problems, f"{len(found)} connections between Pods on {len({n for n, _ in found})} nodes"
    )
