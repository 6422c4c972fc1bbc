"""Make the pages and pictures of docs/ that follow from the code: docs/numbers.md and docs/pictures/modes.svg.

The benchmarks' pages come from `bench`. Made twice they are the same to the byte, so that a test can compare the page
of numbers.
"""

import ast
import inspect
from pathlib import Path

import matplotlib as mpl

from podpool.cli.story import LENGTH, TICKS_PER_SECOND, Mode, play
from podpool.core.numbers import KINDS, RULES, Numbers

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Write them."""
    (DOCS / "numbers.md").write_text(numbers_page())
    (DOCS / "pictures").mkdir(exist_ok=True)
    draw_modes(DOCS / "pictures" / "modes.svg")


def numbers_page() -> str:
    """Write every number with its default, its meaning and its rule."""
    rules = {name: rule for name, _, rule in RULES}
    defaults = Numbers()
    rows = "\n".join(
        f"| `{name}` | {shown(name, getattr(defaults, name))} | {meaning} | {rules[name]} |"
        for name, meaning in meanings().items()
    )
    return f"""# The numbers

Made by `make docs` from `podpool.core.numbers`. A value outside its rule is refused with the rule in the error. Shares
are written with at most two decimals (`0.25`), durations with their unit (`50ms`, `30s`, `1m30s`, `2h`).

| number | default | what it is | rule |
|---|---|---|---|
{rows}
"""


def shown(name: str, value: float | None) -> str:
    """Write a value as people do."""
    return "`buffer` + 1" if value is None else KINDS[name].show(value)


def meanings() -> dict[str, str]:
    """Read what stands below each field."""
    (struct,) = ast.parse(inspect.getsource(Numbers)).body
    assert isinstance(struct, ast.ClassDef)  # noqa: S101  for the type checker: the source of a class is one
    told: dict[str, str] = {}
    for field, words in zip(struct.body, struct.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            told[field.target.id] = ast.literal_eval(words.value) if isinstance(words, ast.Expr) else ""
    return told


def draw_modes(path: Path) -> None:
    """Draw pool size against demand for the three monitor modes."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "podpool"
    from matplotlib import pyplot as plt  # noqa: PLC0415  after the backend is chosen

    figure, axes = plt.subplots(1, len(Mode), figsize=(11, 3), sharey=True, layout="constrained")
    for axis, mode in zip(axes, Mode, strict=True):
        history = play(mode)
        seconds = [tick / TICKS_PER_SECOND for tick in range(len(history.moments))]
        pods, assigned, pool = zip(*((m.scheduled, m.assigned, m.held) for m in history.moments), strict=True)
        axis.fill_between(seconds, pods, step="post", color="#f2c14e", label="Pods scheduled")
        axis.step(seconds, assigned, where="post", color="#7a5c00", label="with an address")
        axis.step(seconds, pool, where="post", color="#0b6e99", lw=2, label="pool")
        axis.set_title(f"{mode.value}: served after {history.served_after:g} s, {history.refused} refused", fontsize=9)
        axis.set(xlabel="seconds", xlim=(0, LENGTH), ylim=(0, 54))
    axes[0].legend(fontsize=8, loc="upper right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
