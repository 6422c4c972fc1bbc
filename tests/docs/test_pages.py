"""Pages that follow from the code are those of the code."""

import pytest

from tools.docs import DOCS, pages


@pytest.mark.parametrize("page", pages())
def test_a_page_that_follows_from_the_code_is_current(page: str) -> None:
    """Else: make docs."""
    assert pages()[page]() == (DOCS / page).read_text()
