"""Generated pages are up to date."""

import pytest

from tools.docs import DOCS, pages


@pytest.mark.parametrize("page", pages())
def test_a_generated_page_is_current(page: str) -> None:
    """If this fails, run make docs."""
    assert pages()[page]() == (DOCS / page).read_text()
