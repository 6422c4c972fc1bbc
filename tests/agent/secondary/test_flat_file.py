"""A network's author chooses the path of the flat file: only regular files below the directories are read."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podpool.agent.secondary import flat_file
from podpool.agent.secondary.flat_file import FlatFileReader, FlatFileUnavailable
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_json import MAX_CONFIG_BYTES
from tests.agent.node_env import LogLines
from tests.kube.event_loops import run_in_loop

CONTENT = b'{"range": "10.7.0.0/16"}'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "whereabouts.d"
    made.mkdir()
    return made


def read(directory: Path, path: str) -> bytes | None:
    return asyncio.run(FlatFileReader([str(directory)]).read(path))


class TestReading:
    def test_without_a_path_the_default_file(self, directory: Path) -> None:
        assert None is read(directory, "")
        (directory / "whereabouts.conf").write_bytes(CONTENT)
        assert CONTENT == read(directory, "")

    def test_a_named_file_comes_before_the_default(self, directory: Path) -> None:
        (directory / "whereabouts.conf").write_bytes(b"{}")
        (directory / "own.conf").write_bytes(CONTENT)
        assert CONTENT == read(directory, str(directory / "own.conf"))

    def test_a_missing_named_file_is_logged_once_and_the_default_is_used(self, directory: Path) -> None:
        (directory / "whereabouts.conf").write_bytes(CONTENT)
        lines, reader = LogLines(), FlatFileReader([str(directory)])
        lines.attach()
        try:
            for _ in range(2):
                assert CONTENT == asyncio.run(reader.read(str(directory / "missing.conf")))
        finally:
            lines.detach()
        (warning,) = lines.warnings
        assert "mount its directory into the agent's container" in warning
        assert "missing.conf" in warning

    def test_links_within_the_directory_are_followed(self, directory: Path) -> None:
        """As in a volume of a ConfigMap."""
        (directory / "..data").mkdir()
        (directory / "..data" / "whereabouts.conf").write_bytes(CONTENT)
        (directory / "whereabouts.conf").symlink_to("..data/whereabouts.conf")
        assert CONTENT == read(directory, "")


class TestRefusals:
    @pytest.mark.parametrize("path", ["/etc/passwd", "/dev/zero", "/proc/self/environ", "passwd", "../x", "a\0b"])
    def test_paths_elsewhere_are_refused(self, directory: Path, path: str) -> None:
        with pytest.raises(InvalidInput, match="^configuration_path"):
            read(directory, path)

    def test_whether_a_file_elsewhere_exists_is_not_revealed(self, directory: Path, tmp_path: Path) -> None:
        (tmp_path / "there").write_bytes(b"secret")
        reasons = set()
        for name in ("there", "not-there"):
            with pytest.raises(InvalidInput) as caught:
                read(directory, str(tmp_path / name))
            reasons.add(caught.value.reason)
        assert 1 == len(reasons)

    def test_dots_and_links_do_not_lead_out_of_the_directory(self, directory: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"secret")
        (directory / "link").symlink_to(tmp_path / "secret")
        (directory / "parent").symlink_to(tmp_path)
        for path in ("../secret", "link", "parent/secret"):
            with pytest.raises(InvalidInput, match="is not below"):
                read(directory, f"{directory}/{path}")

    def test_a_fifo_a_device_or_a_directory_is_refused_at_once(self, directory: Path) -> None:
        os.mkfifo(directory / "fifo")
        (directory / "sub").mkdir()
        for name in ("fifo", "sub"):
            with pytest.raises(InvalidInput, match="is not a regular file"):
                read(directory, str(directory / name))
        with pytest.raises(InvalidInput, match="is not a regular file"):
            asyncio.run(FlatFileReader(["/dev"]).read("/dev/zero"))

    def test_a_long_file_is_refused_without_reading_all_of_it(self, directory: Path) -> None:
        with (directory / "long.conf").open("wb") as file:
            file.truncate(1 << 40)  # sparse
        with pytest.raises(InvalidInput, match=f"longer than {MAX_CONFIG_BYTES} bytes"):
            read(directory, str(directory / "long.conf"))

    def test_a_path_elsewhere_is_refused_before_it_is_accessed(
        self, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be on a file system that hangs; so may the target of a link."""
        (directory / "link").symlink_to(tmp_path / "dead-nfs" / "x")
        accessed: list[str] = []
        for name in ("lstat", "stat", "readlink", "open"):
            monkeypatch.setattr(os, name, recording(getattr(os, name), accessed))
        for path in (tmp_path / "dead-nfs" / "x", directory / ".." / "dead-nfs" / "x", directory / "link"):
            with pytest.raises(InvalidInput, match="is not below"):
                read(directory, str(path))
        assert accessed
        assert [] == [each for each in accessed if "dead-nfs" in each]

    def test_links_in_a_circle_are_refused(self, directory: Path) -> None:
        (directory / "one").symlink_to("two")
        (directory / "two").symlink_to("one")
        with pytest.raises(InvalidInput, match="too many links"):
            read(directory, str(directory / "one"))


def recording(function: Callable[..., object], accessed: list[str]) -> Callable[..., object]:
    def record(path: object, *args: object, **options: object) -> object:
        accessed.append(str(path))
        return function(path, *args, **options)

    return record


class Hang:
    """Lets reads of files with `slow` in their name hang until it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = threading.Event()
        self.reads = 0
        self._read = flat_file._read_regular  # noqa: SLF001  replaced
        monkeypatch.setattr(flat_file, "READ_TIMEOUT", 0.1)
        monkeypatch.setattr(flat_file, "_read_regular", self.read)

    def read(self, path: Path) -> bytes:
        if "slow" in path.name:
            self.reads += 1
            self.ended.wait(10.0)
        return self._read(path)


class TestHangingFileSystem:
    @pytest.fixture
    def hang(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
        made = Hang(monkeypatch)
        yield made
        made.ended.set()

    @run_in_loop
    async def test_it_blocks_neither_the_loop_nor_other_directories_nor_the_default(
        self, hang: Hang, directory: Path, tmp_path: Path
    ) -> None:
        (directory / "whereabouts.conf").write_bytes(CONTENT)
        (tmp_path / "other.conf").write_bytes(b"{}")
        reader = FlatFileReader([str(directory), str(tmp_path)])
        reading = asyncio.create_task(reader.read(str(directory / "slow.conf")))
        await asyncio.sleep(0)
        assert not reading.done()
        with pytest.raises(FlatFileUnavailable, match="slow.conf.*could not be read within"):
            await reading
        assert CONTENT == await reader.read("")
        assert b"{}" == await reader.read(str(tmp_path / "other.conf"))
        assert 1 == hang.reads

    @pytest.mark.parametrize("cancelled", [True, False])
    def test_reads_are_not_queued_and_succeed_after_it(self, hang: Hang, directory: Path, cancelled: bool) -> None:
        (directory / "slow.conf").write_bytes(CONTENT)
        reader, path = FlatFileReader([str(directory)]), str(directory / "slow.conf")

        async def run() -> None:
            loop = asyncio.get_running_loop()
            first = asyncio.create_task(reader.read(path))
            await asyncio.sleep(0.02)
            if cancelled:
                first.cancel()
            results = await asyncio.gather(first, reader.read(path), return_exceptions=True)
            assert isinstance(results[1], FlatFileUnavailable)
            started = loop.time()
            for _ in range(100):
                with pytest.raises(FlatFileUnavailable):
                    await reader.read(path)
            assert loop.time() - started < flat_file.READ_TIMEOUT
            assert 1 == hang.reads
            hang.ended.set()
            await asyncio.sleep(0.05)
            assert CONTENT == await reader.read(path)

        asyncio.run(run())
