"""What every command about a cluster takes: where cluster and ledger are, and how to tell what is found there."""

from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from podpool.cli.daemon_parser import KUBECONFIG
from podpool.cli.errors import DEBUG
from podpool.cli.ledger_spec import LEDGER
from podpool.cli.spec import EXIT_CODES, NO_COLOR, OUTPUT, Output

TOKEN_FILE = "/var/lib/podpool/ledger.db.admin-token"  # noqa: S105  a place, not a secret


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
    output: Annotated[Output, typer.Option("--output", "-o", envvar="PODPOOL_OUTPUT", help=OUTPUT.help)] = Output.TABLE,
    no_color: Annotated[bool, typer.Option("--no-color", help=NO_COLOR)] = False,
    debug: Annotated[bool, typer.Option("--debug", help=DEBUG)] = False,
) -> None:
    """Describe the options once, for all commands."""


class Everyday(TyperCommand):
    """A command about a cluster: its function finds what was said in `Context.obj`, as `Asked`."""

    takes: tuple[str, ...] = Asked.__struct_fields__
    codes: str | None = EXIT_CODES
    usual = Output.TABLE

    def __init__(self, name: str | None, **described: Any) -> None:  # noqa: ANN401  typer's own
        described["params"] = [*(described.get("params") or []), *_shared(self.takes, output=self.usual)]
        super().__init__(name, **{**described, "epilog": described.get("epilog") or self.codes})

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401  typer's own
        """Gather what was said, and run."""
        said = {name: ctx.params.pop(name) for name in self.takes}
        ctx.obj = Asked(**said | {"output": Output(said.get("output", Output.TABLE))})
        return super().invoke(ctx)


class OfCluster(Everyday):
    """A command that asks no ledger."""

    takes = ("kubeconfig", "context", "output", "no_color", "debug")


class OfItself(Everyday):
    """A command that asks nobody."""

    takes = ("output", "no_color", "debug")
    codes = None


class Manifests(OfItself):
    """A command that tells what kubectl is to apply."""

    usual = Output.YAML


class Simple(Everyday):
    """Any other command."""

    takes = ("debug",)
    codes = None


def _shared(names: tuple[str, ...], **usual: object) -> list[Any]:
    template = typer.Typer(add_completion=False)
    template.command()(_options)
    found: list[Any] = [each for each in typer.main.get_command(template).params if each.name in names]
    for each in found:
        each.default = usual.get(each.name or "", each.default)
        each.rich_help_panel = "Of every command like it"
    return found
