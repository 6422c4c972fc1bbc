"""The command table: every command and group by its name, from which the whole command line follows."""

from collections.abc import Mapping

from podpool.cli.spec import cluster, components, lab, ledger
from podpool.cli.spec.model import Command, Group, Option
from podpool.cli.spec.options import CONFIG, DEBUG, LOG_FORMAT, LOG_LEVEL

_MODULES = (lab, cluster, components, ledger)
COMMANDS: Mapping[str, Command] = {each.name: each for module in _MODULES for each in module.COMMANDS}
GROUPS: Mapping[str, Group] = {each.name: each for module in _MODULES for each in module.GROUPS}


def children(name: str) -> dict[str, Command | Group]:
    """Return the commands and groups directly below a group, or at the top, by their last word."""
    prefix = f"{name} " if name else ""
    found: dict[str, Command | Group] = {**COMMANDS, **GROUPS}
    below = {each.removeprefix(prefix): found[each] for each in found if each.startswith(prefix)}
    return {word: each for word, each in below.items() if " " not in word}


def options_of(command: Command) -> tuple[Option, ...]:
    """Return the options of a command, with those that every command and every service has."""
    config = (CONFIG,) if command.config_file else ()
    logging = (LOG_LEVEL, LOG_FORMAT) if command.service else ()
    return (*command.options, *config, *logging, DEBUG)
