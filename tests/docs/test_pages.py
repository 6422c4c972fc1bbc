"""Pages that follow from the code are those of the code."""

from tools.docs import DOCS, numbers_page


def test_the_page_of_numbers_is_current() -> None:
    """Else: make docs."""
    assert numbers_page() == (DOCS / "numbers.md").read_text()
