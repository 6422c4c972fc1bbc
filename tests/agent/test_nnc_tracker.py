"""Which observations of the node's NNC are applied."""

import random

import msgspec
import pytest

from podpool.agent.deps import AgentDeps
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.records import NCAdopted
from podpool.agent.state import AgentState
from podpool.api.azure import (
    AGENT_ANNOTATION,
    AgentReport,
    NetworkConfigSpec,
    NetworkConfigStatus,
    NodeNetworkConfig,
)
from podpool.api.meta import ObjectMeta
from podpool.kube.client import KubeClient
from podpool.runtime.transport import Request, Response
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.agent.nc_samples import NC, grants, status


class NoTransport:
    async def send(self, request: Request) -> Response:
        raise AssertionError(request)


def nnc(resource_version: str, *, version: int = 1, released: tuple[str, ...] = ()) -> NodeNetworkConfig:
    return NodeNetworkConfig(
        metadata=ObjectMeta(resource_version=resource_version),
        spec=NetworkConfigSpec(pending_release=released),
        status=NetworkConfigStatus(network_containers=(status(version, grants(1, 2)),)),
    )


def tracker() -> tuple[NNCTracker, AgentState]:
    disk, clock, rng = MemoryDisk(), SetClock(), random.Random(1)  # noqa: S311  seeded
    state = AgentState(disk, clock, fence_limit=600.0)
    state.open(boot_id="boot-1")
    state.write(NCAdopted(nc=NC))
    deps = AgentDeps(node="n1", boot_id="boot-1", kube=KubeClient(NoTransport()), disk=disk, clock=clock, rng=rng)
    return NNCTracker(deps, state), state


def test_an_event_of_a_late_watch_is_ignored() -> None:
    tracked, _ = tracker()
    newer = nnc("10")
    tracked.observe(newer)
    tracked.observe(nnc("9"))
    assert newer is tracked.newest


def test_a_quorum_read_is_applied_even_when_it_is_older() -> None:
    """Then the API server was restored from a backup."""
    tracked, _ = tracker()
    tracked.observe(nnc("10"))
    older = nnc("9")
    tracked.observe(older, quorum=True)
    assert older is tracked.newest


def test_an_older_status_changes_nothing_even_in_a_newer_object() -> None:
    tracked, state = tracker()
    tracked.observe(nnc("10", version=5))
    tracked.observe(nnc("11", version=4), quorum=True)
    assert 5 == state.pool.version


def test_a_status_of_another_nc_is_not_accepted() -> None:
    tracked, state = tracker()
    state.write(NCAdopted(nc="another"))
    tracked.observe(nnc("10"))
    assert None is state.pool.nc


def test_an_unusable_grant_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tracked, _ = tracker()
    for version in ("1", "2"):
        invalid = status(int(version), {"bad": "nonsense"})
        tracked.observe(
            msgspec.structs.replace(nnc(version), status=NetworkConfigStatus(network_containers=(invalid,)))
        )
    assert ["NNC status has an unusable address, no Pod gets it; correct what writes it"] == [
        each.message for each in caplog.records
    ]
    assert "nonsense" in caplog.records[0].__dict__["fields"]["reason"]


def test_a_grant_that_is_unusable_again_later_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    """So what was logged is forgotten with the grant, and does not grow with every grant of the node's life."""
    tracked, _ = tracker()
    for version, listed in enumerate(({"bad": "nonsense"}, grants(1), {"bad": "nonsense"}), start=1):
        shown = NetworkConfigStatus(network_containers=(status(version, listed),))
        tracked.observe(msgspec.structs.replace(nnc(str(version)), status=shown))
    assert 2 == sum(
        "NNC status has an unusable address, no Pod gets it; correct what writes it" == each.message
        for each in caplog.records
    )


def test_the_history_of_an_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tracked, _ = tracker()
    caplog.set_level("INFO", logger="podpool.agent")
    tracked.observe(nnc("1"))
    tracked.observe(nnc("2", released=("g1",)))
    without = status(2, grants(2))
    tracked.observe(msgspec.structs.replace(nnc("3"), status=NetworkConfigStatus(network_containers=(without,))))
    fields = [each.__dict__["fields"] for each in caplog.records]
    history = [each.message for each, of in zip(caplog.records, fields, strict=True) if "10.0.1.1" in of["address"]]
    released = "a third party released grants of this node (ipsNotInUse), no Pod gets them again"
    assert ["grants added", released, "grants returned"] == history


class TestInheritedReport:
    """What the former agent reported shows whether the journal is older."""

    FORMER, OURS = AgentReport(version=7, boot_id="boot-0"), AgentReport(version=8, boot_id="boot-1")

    def reporting(self, resource_version: str, report: AgentReport) -> NodeNetworkConfig:
        annotations = {AGENT_ANNOTATION: msgspec.json.encode(report).decode()}
        metadata = ObjectMeta(resource_version=resource_version, annotations=annotations)
        return msgspec.structs.replace(nnc(resource_version), metadata=metadata)

    def test_it_is_not_ours_although_the_response_to_our_first_patch_was_lost(self) -> None:
        tracked, _ = tracker()
        tracked.observe(self.reporting("10", self.FORMER))
        tracked.report_sent(self.OURS)
        assert self.FORMER == tracked.inherited_report(self.reporting("11", self.OURS))

    def test_nor_when_the_patch_is_sent_again(self) -> None:
        tracked, _ = tracker()
        tracked.observe(self.reporting("10", self.FORMER))
        tracked.report_sent(self.OURS)
        tracked.observe(self.reporting("11", self.OURS))
        again = msgspec.structs.replace(self.OURS, demand=1)
        tracked.report_sent(again)
        assert self.FORMER == tracked.inherited_report(self.reporting("12", again))
        tracked.report_written()
        assert self.FORMER == tracked.inherited_report(self.reporting("13", AgentReport(version=9)))

    def test_a_late_patch_of_the_former_agent_counts(self) -> None:
        tracked, _ = tracker()
        tracked.observe(self.reporting("10", self.FORMER))
        tracked.report_sent(self.OURS)
        late = msgspec.structs.replace(self.FORMER, version=9)
        assert late == tracked.inherited_report(self.reporting("11", late))
