"""`podpool ledger apply` and `export`: the ledger's configuration as a file."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from podpool.cli.context import LedgerContext
from podpool.cli.ledger_file.document import WantedToken, parse_ledger_file
from podpool.cli.ledger_file.export import exported
from podpool.cli.ledger_file.plan import LedgerAction, Plan, Step, make_plan
from podpool.cli.output import TextTable
from podpool.controller.settings import parse_subnet
from podpool.core.errors import InvalidInput
from podpool.ledger.admin_messages import CreateTokenRequest, RotateTokenRequest, SubnetDetails, TokenInfo
from podpool.ledger.client import LedgerClient


class AppliedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and whether it was done."""

    action: LedgerAction
    name: str
    detail: str = ""
    done: bool = False


class ApplyReport(msgspec.Struct, frozen=True, kw_only=True):
    """All steps, and what the ledger has beside the file."""

    steps: tuple[AppliedStep, ...] = ()
    unlisted: tuple[str, ...] = ()


async def apply(context: LedgerContext, *, file: str, dry_run: bool, prune: bool) -> None:
    """Compare the file with the ledger, and change what differs."""
    wanted = parse_ledger_file(_read(file), file=file)
    plan = make_plan(wanted, *await _read_ledger(context.client), prune=prune)
    base = Path(file).parent
    for token in (each.token for each in plan.steps if each.token):
        _check_secret_file(token, base)
    done = 0
    try:
        for step in () if dry_run else plan.steps:
            await _execute(context.client, step, base)
            done += 1
    finally:  # also the steps before one that the ledger refuses
        _print(context, plan, done=done, dry_run=dry_run)


def _print(context: LedgerContext, plan: Plan, *, done: int, dry_run: bool) -> None:
    steps = tuple(
        AppliedStep(action=each.action, name=each.name, detail=each.detail, done=number < done)
        for number, each in enumerate(plan.steps)
    )
    rows = [(each.action, each.name, "done" if each.done else "not done", each.detail) for each in steps]
    parts: list[TextTable | str] = [TextTable(("ACTION", "NAME", "STATE", "DETAIL"), rows)] if rows else []
    parts += [] if rows else ["The ledger is as in the file."]
    parts += ["Nothing was changed: --dry-run."] if dry_run and rows else []
    parts += [f"Not in the file, and kept without --prune: {', '.join(plan.unlisted)}."] if plan.unlisted else []
    context.printer.result(ApplyReport(steps=steps, unlisted=plan.unlisted), *parts)


async def export(context: LedgerContext) -> None:
    """Print the ledger's subnets and tokens as a file for `apply`."""
    subnets, tokens = await _read_ledger(context.client)
    context.printer.result(exported(subnets.values(), tokens))


async def _read_ledger(client: LedgerClient) -> tuple[dict[str, SubnetDetails], tuple[TokenInfo, ...]]:
    names = [each.subnet for each in (await client.subnets()).subnets]
    return {str(each): await client.details(each) for each in names}, (await client.tokens()).tokens


async def _execute(client: LedgerClient, step: Step, base: Path) -> None:
    if step.token:
        secret = await _new_secret(client, step, step.token)
        _write_secret(step.token, base, secret)
    elif step.action is LedgerAction.REVOKE_TOKEN:
        await client.revoke_token(step.name)
    elif step.spec:
        await client.create_subnet(step.spec)
    else:
        name = parse_subnet(step.name, what="name")
        if step.growth:
            await client.grow_subnet(name, step.growth)
        elif step.action is LedgerAction.DRAIN:
            await client.drain_subnet(name)
        elif step.action is LedgerAction.REOPEN:
            await client.reopen_subnet(name)
        else:
            await client.delete_subnet(name)


async def _new_secret(client: LedgerClient, step: Step, token: WantedToken) -> str:
    if step.action is LedgerAction.CREATE_TOKEN:
        new = CreateTokenRequest(name=token.name, cluster=token.cluster, scope=token.allow, limits=token.limits)
        return (await client.create_token(new)).secret or ""
    return (
        await client.rotate_token(token.name, RotateTokenRequest(scope=token.allow, limits=token.limits))
    ).secret or ""


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput("--file", file, f"cannot be read: {error.strerror}") from None


def _check_secret_file(token: WantedToken, base: Path) -> None:
    """Raise an error before anything is changed, rather than lose a secret that is returned once."""
    directory = (base / token.secret_file).parent
    if not (directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)):
        raise token.at.error(f"{directory} is no directory that can be written: create it for secret_file")


def _write_secret(token: WantedToken, base: Path, secret: str) -> None:
    target = base / token.secret_file
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{secret}\n")
            Path(name).replace(target)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise
    except OSError as error:
        reason = (
            f"cannot be written ({error.strerror}), and the secret is lost: revoke token {token.name}, and apply again"
        )
        raise InvalidInput("secret_file", str(target), reason) from None
