"""Change `core` in small ways, one at a time, and see whether its tests notice; write the score to docs/mutants.md.

The survivors are listed with what was changed: each is a rule that no test states, or a change that makes no
difference.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mutants.md"
MUTMUT = Path(sys.executable).parent / "mutmut"
KILLED = {"killed", "timeout", "segfault"}


def main() -> None:
    """Run mutmut, then count."""
    environment = os.environ | {"HYPOTHESIS_PROFILE": "mutants"}
    ran = subprocess.run([MUTMUT, "run", *sys.argv[1:]], check=False, cwd=ROOT, env=environment)
    if ran.returncode:
        raise SystemExit("podpool: mutmut stopped; what it said stands above")
    told = mutmut("results", "--all", "true")
    verdicts = dict(re.findall(r"^\s*(\S+): (.+)$", told, re.MULTILINE))
    PAGE.write_text(page(verdicts))
    print(f"podpool: {PAGE.relative_to(ROOT)}: {score(Counter(verdicts.values()))}")


def mutmut(*words: str) -> str:
    """Ask mutmut."""
    done = subprocess.run([MUTMUT, *words], check=True, cwd=ROOT, capture_output=True, text=True)
    return done.stdout


def page(verdicts: dict[str, str]) -> str:
    """Write the page: the score by file, then every survivor."""
    by_file: dict[str, Counter[str]] = {}
    for name, verdict in verdicts.items():
        by_file.setdefault(name.split(".")[2], Counter())[verdict] += 1
    rows = "\n".join(f"| {name} | {score(counts)} |" for name, counts in sorted(by_file.items()))
    survivors = "".join(f"\n**{name}**\n\n```text\n{lines}\n```\n" for name, lines in surviving_lines(verdicts).items())
    return f"""# Mutation testing of the core

Made by `make mutants`. A mutant is the core with one small change; it is killed when a test of `tests/core` fails.

All: {score(Counter(verdicts.values()))}.

| file | killed |
|---|---|
{rows}

## Survivors

Each line is what a piece of code could be instead, and no test would notice. Most are the words of an error, or run
while a module is imported, before a mutant can be switched on.
{survivors}"""


def surviving_lines(verdicts: dict[str, str]) -> dict[str, str]:
    """Show, by file, the changed lines that no test noticed."""
    by_file: dict[str, list[str]] = {}
    for name, verdict in sorted(verdicts.items()):
        if verdict not in KILLED:
            by_file.setdefault(name.split(".")[2], []).append(change(name))
    return {name: "\n".join(lines) for name, lines in by_file.items()}


def score(counts: Counter[str]) -> str:
    """Tell how many were killed."""
    killed = sum(counts[verdict] for verdict in KILLED)
    return f"{killed} of {counts.total()} ({100 * killed / max(1, counts.total()):.1f} %)"


def change(name: str) -> str:
    """Show what the changed lines became."""
    lines = mutmut("show", name).splitlines()
    return "\n".join(line[1:].strip() for line in lines if re.match(r"[+](?![+])", line))


if __name__ == "__main__":
    main()
