"""Modules that pages name exist, the file map has every module, and a public class name names one class."""

import re
from collections import Counter

import pytest

from parts.pages import ROOT

SOURCE = ROOT / "src" / "podpool"


@pytest.mark.parametrize("path", re.findall(r"`([a-z]+/[a-z_/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text()))
def test_a_file_named_by_contributing_exists(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def test_a_module_named_by_the_architecture_page_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## File map")[0]
    packages = "|".join(each.parent.name for each in SOURCE.glob("*/__init__.py"))
    names = re.findall(rf"`((?:{packages})(?:\.[a-z_]+)+)(?:\.[A-Z]\w+)?`", text)
    paths = [SOURCE.joinpath(*name.split(".")) for name in names]
    assert paths
    assert [] == [str(path) for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())]


def test_a_public_class_name_names_one_class() -> None:
    names = (
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.MULTILINE)
    )
    assert {} == {name: count for name, count in Counter(names).items() if count > 1}
