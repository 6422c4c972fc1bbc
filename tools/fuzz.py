"""Fuzz the plugin in C, guided by coverage: `python -m tools.fuzz --minutes 20`.

libFuzzer drives `shim.c` as it stands, with the address and undefined-behaviour sanitizers, in the world of
`tests/cni/fuzz/hostile.c`, which has no time and no chance of its own: the same seed finds the same. What a run learns
is kept in the user's cache, so that the next one begins there; what it finds is a file where it was started.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

from parts import cache
from parts.debian import command
from podpool.cni.build import SOURCE

WORLD = Path(__file__).resolve().parent.parent / "tests" / "cni" / "fuzz"
FLAGS = (
    *("-std=gnu11", "-g", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
LONGEST_SCRIPT = 600


def main() -> None:
    """Search for so many minutes."""
    parser = argparse.ArgumentParser(description="Fuzz the CNI plugin.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    asked = parser.parse_args()
    learned = cache.place("fuzz", "shim")
    learned.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        program = build(SOURCE, Path(scratch))
        options = (f"-max_total_time={asked.minutes * 60:.0f}", "-print_final_stats=1")
        ended_with = subprocess.run(words(program, learned, asked.seed, *options), check=False).returncode
    raise SystemExit(ended_with)


def build(source: Path, into: Path) -> Path:
    """Compile a plugin into its hostile world."""
    clang, plugin, made = command("clang"), into / "plugin.o", into / "fuzz"
    redirected = ("-fsanitize=fuzzer-no-link", "-DPLUGIN", "-include", WORLD / "hostile.h")
    subprocess.run([clang, *FLAGS, *redirected, "-c", source, "-o", plugin], check=True)
    subprocess.run([clang, *FLAGS, "-fsanitize=fuzzer", WORLD / "hostile.c", plugin, "-o", made], check=True)
    return made


def words(program: Path, learned: Path, seed: int, *options: str) -> list[str | Path]:
    """The command that begins with the seeds and what was learned before."""
    limits = (f"-seed={seed}", f"-max_len={LONGEST_SCRIPT}", "-len_control=10")
    return [program, *limits, *options, learned, WORLD / "seeds"]


if __name__ == "__main__":
    main()
