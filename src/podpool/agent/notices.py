"""What the agent tells people, apart from what it answers: one sentence each, to whoever it was given to."""

import logging
from collections.abc import Callable

Tell = Callable[[str], None]


def to_log(node: str) -> Tell:
    """Tell it to the log, under the node's name."""
    log = logging.getLogger(__name__)
    return lambda sentence: log.warning("%s: %s", node, sentence)
