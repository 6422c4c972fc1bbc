"""Bugs to plant: each leaves out one rule of the product. They know private names, as a bug would."""

import asyncio
from typing import Any

import msgspec
import pytest

from podpool.agent.book import Book
from podpool.agent.fence import Fence
from podpool.agent.pool import Pool
from podpool.agent.records import Assigned
from podpool.controller.books import Books
from podpool.controller.gone import Gone
from podpool.controller.nodes import Nodes
from podpool.ledger.authority import Ledger


def answered_before_the_journal(patch: pytest.MonkeyPatch) -> None:
    """An ADD is answered at once, and written down half a second later."""
    write = Book.write

    def late(book: Book, record: Any) -> None:  # noqa: ANN401  a record
        if isinstance(record, Assigned):
            book._apply(record)
            asyncio.get_running_loop().call_later(0.5, book._journal.append, record)
        else:
            write(book, record)

    patch.setattr(Book, "write", late)


def no_rest_after_a_reboot(patch: pytest.MonkeyPatch) -> None:
    """What a Pod used before the reboot is given again at once."""
    start = Pool._start

    def fresh(pool: Pool, record: Any) -> None:  # noqa: ANN401  a record
        rebooted = record.boot_id != pool.boot_id
        start(pool, record)
        if rebooted:
            pool._fresh.update(
                {each: msgspec.structs.replace(grant, since=-1e9, used=False) for each, grant in pool._used.items()}
            )
            pool._used.clear()
            pool._doubted_at = None

    patch.setattr(Pool, "_start", fresh)


def the_fence_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent gives addresses although it has not confirmed its Node for long."""
    patch.setattr(Fence, "is_open", lambda _: True)


def a_restore_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """The ledger goes on from whatever books it finds."""

    async def start(_: Ledger) -> None:
        return

    patch.setattr(Ledger, "start", start)
    patch.setattr("podpool.ledger.terms._heed", lambda *_, **__: None)


def gone_is_told_from_a_cache(patch: pytest.MonkeyPatch) -> None:
    """A container is given up as soon as its Node is not seen."""

    async def gone(*_: object) -> bool:
        return True

    patch.setattr(Gone, "_is_gone", gone)


def the_boot_id_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A Node that was deleted and registered again counts as another machine."""
    patch.setattr(Books, "of_node", lambda books, node, _: books.of_uid(node.metadata.uid))

    async def unread(*_: object) -> None:
        return

    patch.setattr(Nodes, "_read_once_more", unread)
