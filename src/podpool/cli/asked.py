"""What every command about a cluster takes: where cluster and ledger are, and how to tell what is found there."""

import enum
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from podpool.cli.daemons import KUBECONFIG
from podpool.cli.ledger_commands import LEDGER

TOKEN_FILE = "/var/lib/podpool/ledger.db.admin-token"  # noqa: S105  a place, not a secret
EXIT_CODES = (
    "Exit codes: 0 all is told; 1 something is wrong; 2 a word or a file cannot be meant; "
    "3 the API server or the ledger could not be asked."
)


class Output(enum.StrEnum):
    """How to tell."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was said with a command."""

    kubeconfig: str = ""
    context: str = ""
    ledger: str = LEDGER
    ledger_token_file: str = TOKEN_FILE
    ledger_ca_file: str = ""
    output: Output = Output.TABLE
    no_color: bool = False
    debug: bool = False


def _options(  # noqa: PLR0913  one for each option
    *,
    kubeconfig: Annotated[str, typer.Option(envvar="PODPOOL_KUBECONFIG", help=KUBECONFIG)] = "",
    context: Annotated[str, typer.Option(help="a context of the kubeconfig; else the current one")] = "",
    ledger: Annotated[
        str, typer.Option(envvar="PODPOOL_LEDGER", help="where the ledger is; none, if there is none")
    ] = LEDGER,
    ledger_token_file: Annotated[
        str, typer.Option(envvar="PODPOOL_LEDGER_TOKEN_FILE", help="the file with a token for the ledger")
    ] = TOKEN_FILE,
    ledger_ca_file: Annotated[
        str, typer.Option(envvar="PODPOOL_LEDGER_CA_FILE", help="trust the ledger because of this authority, a file")
    ] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="how to tell")] = Output.TABLE,
    no_color: Annotated[bool, typer.Option("--no-color", help="no colours; NO_COLOR does the same")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="when it fails, show where in the program")] = False,
) -> None:
    """Describe the options once, for all commands."""


class Everyday(TyperCommand):
    """A command about a cluster: its function finds what was said in `Context.obj`, as `Asked`."""

    def __init__(self, name: str | None, **described: Any) -> None:  # noqa: ANN401  typer's own
        epilog = described.pop("epilog", None) or EXIT_CODES
        described["params"] = [*(described.get("params") or []), *_shared()]
        super().__init__(name, epilog=epilog, **described)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401  typer's own
        """Gather what was said, and run."""
        said = {name: ctx.params.pop(name) for name in Asked.__struct_fields__}
        ctx.obj = Asked(**said | {"output": Output(said["output"])})
        return super().invoke(ctx)


def _shared() -> list[Any]:
    template = typer.Typer(add_completion=False)
    template.command()(_options)
    return typer.main.get_command(template).params
