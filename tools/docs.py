"""Make the pages and pictures of docs/ that follow from the code: docs/settings.md, docs/reference and some pictures.

The benchmarks' pages come from `bench`. Made twice they are the same to the byte, so that a test can compare the pages.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from podpool.core.settings import FORMATS, RULES, Settings
from tools.pictures import PICTURES
from tools.reference import PAGES
from tools.reference.words import code, table, told_in

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Write them."""
    for name, page in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(page())
    for name, draw in PICTURES.items():
        draw(DOCS / "pictures" / name)


def pages() -> Mapping[str, Callable[[], str]]:
    """List the pages, each with who makes it."""
    return {"settings.md": settings_page, **{f"reference/{name}": page for name, page in PAGES.items()}}


def settings_page() -> str:
    """Write every number with its default, its meaning and its rule."""
    rules = {name: rule for name, _, rule in RULES}
    defaults = Settings()
    rows = [
        (code(name), shown(name, getattr(defaults, name)), meaning, rules[name])
        for name, meaning in told_in(Settings).items()
    ]
    return f"""# The numbers

Made by `make docs` from `podpool.core.settings`. A value outside its rule is refused with the rule in the error. Shares
are written with at most two decimals (`0.25`), durations with their unit (`50ms`, `30s`, `1m30s`, `2h`).

{table(("number", "default", "what it is", "rule"), rows)}
"""


def shown(name: str, value: float | None) -> str:
    """Write a value as people do."""
    return "`buffer` + 1" if value is None else FORMATS[name].show(value)


if __name__ == "__main__":
    main()
