"""Help texts in kubectl's layout: summary, examples, commands or options, usage."""

import textwrap
from collections.abc import Iterator

from podpool.cli.spec import children, options_of
from podpool.cli.spec.model import Argument, Command, Group, Option, Section, Type

WIDTH = 100
ABOUT = "podpool is IP address management (IPAM) for Kubernetes Pods in subnets that are running out."


def help_text(found: Command | Group | None, program: str = "podpool") -> str:
    """Return the help of a command, a group, or podpool itself."""
    parts = _command(found, program) if isinstance(found, Command) else _group(found, program)
    return "\n\n".join(parts) + "\n"


def _group(group: Group | None, program: str) -> Iterator[str]:
    name = group.name if group else ""
    below = children(name)
    yield group.summary if group else ABOUT
    if group:
        yield f"Available Commands:\n{_listed(below)}"
    else:
        for section in Section:
            yield f"{section}:\n{_listed({word: each for word, each in below.items() if each.section is section})}"
    path = " ".join(filter(None, (program, name)))
    yield f"Usage:\n  {path} COMMAND [options]"
    yield f'Use "{path} COMMAND --help" for more information about a command.'


def _listed(commands: dict[str, Command | Group]) -> str:
    width = max(map(len, commands), default=0)
    lines = (
        textwrap.fill(each.summary, WIDTH, initial_indent=f"  {word:{width}}   ", subsequent_indent=" " * (width + 5))
        for word, each in commands.items()
    )
    return "\n".join(lines)


def _command(command: Command, program: str) -> Iterator[str]:
    yield textwrap.fill(command.summary, WIDTH)
    if command.description:
        yield textwrap.fill(command.description, WIDTH)
    examples = "\n\n".join(f"  # {each.purpose}\n  {_renamed(each.command, program)}" for each in command.examples)
    yield f"Examples:\n{examples}"
    if below := children(command.name):
        yield f"Available Commands:\n{_listed(below)}"
    if command.arguments:
        yield "Arguments:\n" + "\n".join(map(_argument, command.arguments))
    yield "Options:\n" + "\n\n".join(map(_option, options_of(command)))
    if command.config_file:
        yield textwrap.fill(f"Options are also read from {command.config_file}, or from the file named by --config.")
    yield "Usage:\n  " + " ".join([program, command.name, *(each.usage for each in command.arguments), "[options]"])
    if command.exit_codes:
        yield textwrap.fill(command.exit_codes, WIDTH)


def _renamed(command: str, program: str) -> str:
    return f"{program}{command.removeprefix('podpool')}" if command.startswith("podpool ") else command


def _argument(argument: Argument) -> str:
    return f"    {argument.name}:\n{_indented(argument.help)}"


def _option(option: Option) -> str:
    default = f"'{option.default}'" if option.type is Type.STRING else option.default
    flags = f"{option.short}, {option.flag}" if option.short else option.flag
    about = option.help
    if option.choices:
        about += f" One of: {', '.join(option.choices)}."
    if option.variable:
        about += f" Environment: {option.variable}."
    return f"    {flags}={default}:\n{_indented(about)}"


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
