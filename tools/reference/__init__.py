"""Generators of docs/reference, from declarations in the code.

Objects come from structs and schemas, metrics from the exposition of each process, configuration from the command
table, the ledger API from its route table. Missing descriptions are added at their source.
"""

from collections.abc import Callable, Mapping

from tools.reference.configuration import configuration_page
from tools.reference.ledger_api import ledger_api_page
from tools.reference.metrics import metrics_page
from tools.reference.objects import objects_page

PAGES: Mapping[str, Callable[[], str]] = {
    "objects.md": objects_page,
    "metrics.md": metrics_page,
    "configuration.md": configuration_page,
    "ledger-api.md": ledger_api_page,
}
