"""Receipts and signed NC states: only what the ledger has signed for a network, and for an NC, is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.domain.receipts import NCStateReceipt, Receipt, ReceiptKey, digest, key_id

KEY = ReceiptKey(b"k" * 32)
OTHER = ReceiptKey(b"o" * 32)
RECEIPT = Receipt(3, "0123456789abcdef", 1_000_123)
STATE = NCStateReceipt(RECEIPT, 7, digest("10.0.0.2", [("g", "10.0.0.3")]))


def test_a_receipt_is_read_by_its_key_and_for_its_network() -> None:
    signed = KEY.sign("vnet", RECEIPT)
    assert KEY.verify("vnet", signed) == RECEIPT
    assert KEY.verify("other", signed) is None
    assert OTHER.verify("vnet", signed) is None


def test_a_state_is_read_for_its_nc_only() -> None:
    """A node cannot present the state of its neighbour."""
    signed = KEY.sign_state("vnet", "nc-1", STATE)
    assert KEY.verify_state("vnet", "nc-1", signed) == STATE
    assert KEY.verify_state("vnet", "nc-2", signed) is None
    assert KEY.verify_state("other", "nc-1", signed) is None
    assert KEY.verify("vnet", signed) is None


@pytest.mark.parametrize("text", [None, "", "r1", "r1.", "9007199254740993", "r1." + "9" * 10_000, "r1.é.0.0.0.0"])
def test_other_texts_are_no_receipts(text: str | None) -> None:
    assert KEY.verify("vnet", text) is None
    assert KEY.verify_state("vnet", "nc-1", text) is None


@given(position=st.integers(0, 10_000), character=st.sampled_from("0123456789abcdefAZ.-_"))
def test_a_changed_receipt_is_not_read(position: int, character: str) -> None:
    """Every character of it is signed."""
    for signed in (KEY.sign("vnet", RECEIPT), KEY.sign_state("vnet", "nc-1", STATE)):
        at = position % len(signed)
        changed = signed[:at] + character + signed[at + 1 :]
        if changed != signed:
            assert KEY.verify("vnet", changed) is None
            assert KEY.verify_state("vnet", "nc-1", changed) is None


def test_the_digest_does_not_depend_on_the_order() -> None:
    grants = [("a", "10.0.0.3"), ("b", "10.0.0.4")]
    assert digest("10.0.0.2", grants) == digest("10.0.0.2", grants[::-1])
    assert digest("10.0.0.2", grants) != digest("", grants)
    assert digest("", [("a", "10.0.0.4"), ("b", "10.0.0.3")]) != digest("", grants)


def test_the_key_of_a_receipt_is_named() -> None:
    """An error can state that another key has signed it."""
    assert key_id(KEY.sign("vnet", RECEIPT)) == KEY.id != OTHER.id
    assert key_id("anything") == ""


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes, this one has 31"):
        ReceiptKey(b"k" * 31)
