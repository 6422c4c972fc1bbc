"""Coverage-guided fuzzing of the C plugin: `python -m tools.fuzz --minutes 20`.

libFuzzer runs the unmodified `shim.c` with the address and undefined-behaviour sanitizers, on the simulated system
calls of `tests/cni/fuzz/hostile.c`, which have no clock or randomness: the same seed gives the same result. The corpus
is kept in the user's cache for the next run; a failing input is written to the current directory.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

from parts import cache
from parts.debian import command
from podpool.cni.build import SOURCE

HARNESS = Path(__file__).resolve().parent.parent / "tests" / "cni" / "fuzz"
FLAGS = (
    *("-std=gnu11", "-g", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
MAX_INPUT = 600


def main() -> None:
    """Run the fuzzer."""
    parser = argparse.ArgumentParser(description="Fuzz the CNI plugin.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one for each run")
    args = parser.parse_args()
    corpus = cache.place("fuzz", "shim")
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        program = build(SOURCE, Path(scratch))
        options = (f"-max_total_time={args.minutes * 60:.0f}", "-print_final_stats=1")
        exit_code = subprocess.run(fuzz_command(program, corpus, args.seed, *options), check=False).returncode
    raise SystemExit(exit_code)


def build(source: Path, into: Path) -> Path:
    """Compile a plugin together with the harness; returns the program."""
    clang, plugin, program = command("clang"), into / "plugin.o", into / "fuzz"
    redirect = ("-fsanitize=fuzzer-no-link", "-DPLUGIN", "-include", HARNESS / "hostile.h")
    subprocess.run([clang, *FLAGS, *redirect, "-c", source, "-o", plugin], check=True)
    subprocess.run([clang, *FLAGS, "-fsanitize=fuzzer", HARNESS / "hostile.c", plugin, "-o", program], check=True)
    return program


def fuzz_command(program: Path, corpus: Path, seed: int, *options: str) -> list[str | Path]:
    """Return the command that starts from the seeds and the corpus."""
    limits = (f"-seed={seed}", f"-max_len={MAX_INPUT}", "-len_control=10")
    return [program, *limits, *options, corpus, HARNESS / "seeds"]


if __name__ == "__main__":
    main()
