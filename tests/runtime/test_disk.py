"""Files as a journal needs them."""

import asyncio
from pathlib import Path

from podpool.runtime.disk import LocalDisk


def test_what_is_appended_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = LocalDisk(tmp_path / "state")
    first.append("journal", b"one")
    first.append("journal", b"two")
    assert b"onetwo" == LocalDisk(tmp_path / "state").read("journal")


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert LocalDisk(tmp_path).read("journal") is None


def test_a_replaced_file_is_whole_and_goes_on(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.append("journal", b"old")
    asyncio.run(disk.replace("journal", b"new"))
    disk.append("journal", b"er")
    asyncio.run(disk.sync("journal"))
    assert b"newer" == disk.read("journal")


def test_a_torn_tail_can_be_cut_off(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.append("journal", b"whole torn")
    disk.truncate("journal", 5)
    disk.append("journal", b"!")
    assert b"whole!" == disk.read("journal")


def test_names_are_listed_in_order_and_removed(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    for name in ("b", "a", "c"):
        disk.append(name, b"x")
    disk.remove("b")
    disk.remove("never was")
    assert ["a", "c"] == disk.names()
    disk.close()


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path / "state")
    disk.append("journal", b"x")
    assert 0o700 == (tmp_path / "state").stat().st_mode & 0o777
    assert 0o600 == (tmp_path / "state" / "journal").stat().st_mode & 0o777
