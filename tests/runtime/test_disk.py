"""Files as a journal needs them."""

import asyncio
import fcntl
import itertools
import os
import subprocess
import sys
from errno import EIO
from pathlib import Path

import pytest

from podpool import __version__
from podpool.runtime.disk import LOCK_FILE, LocalDisk


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


def test_a_file_of_another_process_is_listed(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    os.utime(tmp_path, (1_000_000, 1_000_000))  # listed once, it need not be listed again until it changes
    assert [] == disk.names() == disk.names()
    (tmp_path / "left").write_bytes(b"x")
    assert ["left"] == disk.names()
    (tmp_path / "soon after").write_bytes(b"x")
    assert ["left", "soon after"] == disk.names()


def test_a_file_within_the_resolution_of_time_stamps_is_listed(tmp_path: Path) -> None:
    disk, stamp = LocalDisk(tmp_path), tmp_path.stat().st_mtime_ns
    assert [] == disk.names()
    (tmp_path / "left").write_bytes(b"x")
    os.utime(tmp_path, ns=(stamp, stamp))
    assert ["left"] == disk.names()


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path / "state")
    disk.append("journal", b"x")
    assert 0o700 == (tmp_path / "state").stat().st_mode & 0o777
    assert 0o600 == (tmp_path / "state" / "journal").stat().st_mode & 0o777


class TestLock:
    """One process at a time locks a directory; two disks have two open files, as two processes."""

    def test_a_second_disk_gets_the_holder(self, tmp_path: Path) -> None:
        first, second = LocalDisk(tmp_path), LocalDisk(tmp_path)
        assert first.try_lock() is None
        assert f"process {os.getpid()}, podpool {__version__}" == second.try_lock()
        assert first.try_lock() is None
        first.close()
        assert second.try_lock() is None
        second.close()

    @pytest.mark.integration
    def test_it_ends_with_the_process_however_that_ends(self, tmp_path: Path) -> None:
        program = "import sys, time; from pathlib import Path; from podpool.runtime.disk import LocalDisk"
        program += "\ndisk = LocalDisk(Path(sys.argv[1])); disk.try_lock(); print('locked', flush=True); time.sleep(60)"
        command = [sys.executable, "-c", program, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            process.stdout.readline()
            disk = LocalDisk(tmp_path)
            assert f"process {process.pid}, podpool {__version__}" == disk.try_lock()
            process.kill()
            process.wait()
        assert disk.try_lock() is None
        disk.close()

    def test_a_deleted_lock_file_locks_nothing(self, tmp_path: Path) -> None:
        first, second, third = (LocalDisk(tmp_path) for _ in range(3))
        assert first.try_lock() is None
        (tmp_path / LOCK_FILE).unlink()
        assert second.try_lock() is None
        assert third.try_lock() is not None
        for disk in (first, second):
            disk.close()

    @pytest.mark.parametrize("replaced", [False, True])
    def test_one_that_is_deleted_before_it_is_locked_locks_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
    ) -> None:
        lock_file, flock, calls = tmp_path / LOCK_FILE, fcntl.flock, itertools.count()

        def delete_first(descriptor: int, operation: int) -> None:
            if next(calls) == 0:
                lock_file.unlink()
                if replaced:
                    lock_file.touch()
            flock(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", delete_first)
        first, second = LocalDisk(tmp_path), LocalDisk(tmp_path)
        assert first.try_lock() is None
        assert second.try_lock() is not None
        first.close()

    def test_it_is_none_of_the_files(self, tmp_path: Path) -> None:
        disk = LocalDisk(tmp_path)
        disk.try_lock()
        assert [] == disk.names()
        assert 0o600 == (tmp_path / LOCK_FILE).stat().st_mode & 0o777
        disk.close()


def test_a_file_whose_directory_entry_was_not_synced_is_not_taken_for_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = LocalDisk(tmp_path)

    def fails(_: LocalDisk) -> None:
        raise OSError(EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "_sync_root", fails)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                disk.append("journal", b"x")
    assert [] == disk.names()
    disk.append("journal", b"x")
    assert b"x" == disk.read("journal")
    disk.close()


def test_a_cancelled_replacement_is_completed_before_the_next(tmp_path: Path) -> None:
    async def cancel() -> bytes | None:
        disk = LocalDisk(tmp_path)
        first = asyncio.ensure_future(disk.replace("snapshot", b"1" * 1000))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert b"1" * 1000 == disk.read("snapshot")
        await disk.replace("snapshot", b"2")
        return disk.read("snapshot")

    assert b"2" == asyncio.run(cancel())
