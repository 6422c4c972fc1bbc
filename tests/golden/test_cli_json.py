"""What programs read: `-o json` of every command that tells, and what the dashboard's page is sent.

`-o json` has every field under the name of the Python attribute, whatever its name in other encodings is.
"""

from typing import Any

import msgspec
import pytest

from podpool.cli.commands import adopt, journal
from podpool.cli.commands.ledger_file import ApplyReport
from podpool.cli.commands.status import ItemList, SliceList
from podpool.cli.commands.support_bundle import BundleResult
from podpool.cli.ledger_file.export import exported
from podpool.cli.ledger_file.plan import LedgerAction
from podpool.cli.output import Printer
from podpool.cli.spec import COMMANDS
from podpool.cli.spec.model import Output
from podpool.core.settings import FORMATS
from podpool.inspect.activity import Activity
from podpool.inspect.address_map import AddressMap
from podpool.inspect.audit import AuditReport
from podpool.inspect.cluster_model import ClusterDelta, ClusterSnapshot
from podpool.inspect.diagnose import Diagnosis
from podpool.inspect.forecast import Trend
from podpool.inspect.health import HealthReason
from podpool.inspect.preflight.report import PreflightReport, Severity
from podpool.inspect.repair import Repair, RepairResult
from podpool.inspect.search import AddressStatus, SearchMatch, SearchResult
from podpool.inspect.secondary_networks import NetworkView, SliceView
from podpool.inspect.status import Leader
from podpool.inspect.verify.pods import VerifyReport
from podpool.inspect.view_models import NodeView, PodView, SubnetView
from podpool.ledger import admin_messages as forms
from podpool.ledger import messages
from podpool.ledger.storage.fsck import FsckReport
from podpool.whereabouts.adoption_findings import Problem
from tests.golden.files import matches_json, on_the_wire
from tests.golden.samples import sample
from tests.golden.sources import keys_beside, keyword_values

LEDGER = {
    "subnet create": messages.SubnetState,
    "subnet list": messages.SubnetList,
    "subnet show": forms.SubnetDetails,
    "subnet delete": forms.DeletedSubnet,
    "token create": forms.TokenInfo,
    "token rotate": forms.TokenInfo,
    "token list": forms.TokenList,
    "audit-log": forms.AuditLog,
    "cluster list": forms.ClusterList,
    "cluster retire": forms.RetiredCluster,
    "history": forms.AddressHistory,
    "recovery": messages.RecoveryStatus,
    "check": FsckReport,
}


def answers() -> dict[str, Any]:
    """What each command tells, with every field set."""
    lists = {"subnets": SubnetView, "nodes": NodeView, "pods": PodView, "slices": NetworkView}
    past = {"periods": [sample(forms.AllocationPeriod)], "pod_usages": [sample(forms.ReportedPodUsage)]}
    report, plan = sample(AuditReport), [sample(Repair)]
    return {
        **{name: ItemList(items=[sample(view)], unreachable={"ledger": "why"}) for name, view in lists.items()},
        **{f"ledger {name}": sample(answer) for name, answer in LEDGER.items()},
        "slices NETWORK": SliceList(items=[sample(NetworkView)], slices=[sample(SliceView)], waiting_nodes=["node"]),
        "watch": sample(Activity),
        "who": {"now": sample(AddressStatus), **past},
        "why": sample(Diagnosis),
        "audit": report,
        "audit --repair": {"report": report, "server": "server", "plan": plan},
        "audit --repair, each step": sample(RepairResult),
        "adopt whereabouts": sample(adopt.AdoptionReport),
        "agent journal, each assignment": sample(journal.JournalAssignment),
        "status, controller": sample(Leader),
        "status, each reason": sample(HealthReason),
        "support-bundle": sample(BundleResult),
        "verify": sample(VerifyReport),
        "ledger apply": sample(ApplyReport),
        "ledger export": exported([sample(forms.SubnetDetails)], [sample(forms.TokenInfo)]),
        "preflight": sample(PreflightReport),
    }


def test_answers_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for command, answer in answers().items():
        Printer(Output.JSON, no_color=True).result(answer)
        printed[command] = msgspec.json.decode(capsys.readouterr().out)
    matches_json("cli/answers.json", printed)


def test_keys_that_commands_put_together() -> None:
    """`podpool status` and `podpool agent journal` tell dicts that only their source has."""
    found = {"status": keys_beside("nodes_short"), "journal": keys_beside("torn_bytes", "damaged")}
    matches_json("cli/keys.json", found)


def test_words_for_programs() -> None:
    """Values of enums, and codes of what an audit finds: some are made from the names of an enum's members."""
    pools = [each.name for each in Problem]
    codes = keyword_values("code", beside=("invariant", "about"))
    matches_json(
        "cli/words.json",
        {
            "outlook": list(Trend),
            "trouble": list(Problem),
            "output": list(Output),
            "severity": list(Severity),
            "action": list(LedgerAction),
            "audit code": codes,
            "audit code after `pool-`, in upper case": pools,
        },
    )


def test_options_of_commands() -> None:
    """Names of commands and options, which are also keys of TOML files and, in upper case, of the environment."""
    options = {
        name: [*(each.name for each in command.arguments), *sorted(each.name for each in command.options)]
        for name, command in COMMANDS.items()
    }
    matches_json("cli/options.json", {"settings": sorted(FORMATS), "options": options})


def test_what_the_page_is_sent() -> None:
    """The stream's two events, and answers to questions."""
    sent = {
        "event everything": ClusterSnapshot,
        "event change": ClusterDelta,
        "/api/search": list[SearchMatch],
        "/api/addresses, /api/nodes, /api/pods": SearchResult,
        "/api/subnets/NETWORK/SUBNET/addresses": AddressMap,
    }
    matches_json("cli/dashboard.json", {path: on_the_wire(sample(answer)) for path, answer in sent.items()})
