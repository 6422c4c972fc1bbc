"""The pages of docs/reference, made from what the code itself declares.

Objects from their structs and schemas, metrics from the pages that Prometheus reads, configuration from what describes
the commands, calls from the ledger's table. A word that is missing there is missing here: it is added at its source.
"""

from collections.abc import Callable, Mapping

from tools.reference.calls import calls_page
from tools.reference.configuration import configuration_page
from tools.reference.metrics import metrics_page
from tools.reference.objects import objects_page

PAGES: Mapping[str, Callable[[], str]] = {
    "objects.md": objects_page,
    "metrics.md": metrics_page,
    "configuration.md": configuration_page,
    "ledger-api.md": calls_page,
}
