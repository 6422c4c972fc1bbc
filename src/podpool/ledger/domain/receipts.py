"""Receipts and signed NC states: what the ledger gives out to recognise later that it has lost commits.

A receipt names one commit of a network: epoch, incarnation of the writer, revision. A signed NC state is a receipt of
the commit that made a version of a network container (NC), with a digest of its addresses. Both are signed with
HMAC-SHA-256, so that no caller and no node can invent one: a number that is not signed proves nothing. The wire form is
one short line of text; network and NC are not part of it but are signed with it, and `KEY` is the ID of the key:

    r1.KEY.EPOCH.INCARNATION.REVISION.MAC
    s1.KEY.EPOCH.INCARNATION.REVISION.VERSION.DIGEST.MAC
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable

import msgspec

_RECEIPT, _STATE = "r1", "s1"
_NUMBER, _HEX, _BASE64 = r"(0|[1-9][0-9]{0,15})", "([0-9a-f]{16})", "([A-Za-z0-9_-]{22})"
_COMMIT = rf"([0-9a-f]{{8}})\.{_NUMBER}\.{_HEX}\.{_NUMBER}"
_RECEIPT_FORM = re.compile(rf"{_RECEIPT}\.{_COMMIT}\.{_BASE64}")
_STATE_FORM = re.compile(rf"{_STATE}\.{_COMMIT}\.{_NUMBER}\.{_BASE64}\.{_BASE64}")
_MAC_BYTES = 16
MIN_KEY_BYTES = 32


class Receipt(msgspec.Struct, frozen=True):
    """One commit of a network."""

    epoch: int
    """How many recoveries the network had begun."""
    incarnation: str
    """The writer: a random ID, new with each start and each reconnect to the database."""
    revision: int


class NCStateReceipt(msgspec.Struct, frozen=True):
    """The commit that made a version of an NC, and a digest of the addresses that it lists."""

    commit: Receipt
    version: int
    digest: str


class ReceiptKey:
    """The key that signs; it is kept outside of the database, which stores only its fingerprint."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_KEY_BYTES:
            raise ValueError(f"a receipt key has at least {MIN_KEY_BYTES} bytes, this one has {len(secret)}")
        self._secret = secret
        self.fingerprint = hashlib.sha256(b"podpool receipt key\n" + secret).hexdigest()
        self.id = self.fingerprint[:8]

    def sign(self, network: str, receipt: Receipt) -> str:
        """Return the wire form of a receipt."""
        body = f"{_RECEIPT}.{self._commit(receipt)}"
        return f"{body}.{self._mac(body, network)}"

    def verify(self, network: str, text: str | None) -> Receipt | None:
        """Return a receipt that this key has signed for the network; None for any other text."""
        found = _RECEIPT_FORM.fullmatch(text) if text else None
        if text is None or found is None or not self._is_signed(text, network):
            return None
        return _receipt(found)

    def sign_state(self, network: str, nc_id: str, state: NCStateReceipt) -> str:
        """Return the wire form of an NC state."""
        body = f"{_STATE}.{self._commit(state.commit)}.{state.version}.{state.digest}"
        return f"{body}.{self._mac(body, network, nc_id)}"

    def verify_state(self, network: str, nc_id: str, text: str | None) -> NCStateReceipt | None:
        """Return the state that this key has signed for the NC; None for any other text."""
        found = _STATE_FORM.fullmatch(text) if text else None
        if text is None or found is None or not self._is_signed(text, network, nc_id):
            return None
        return NCStateReceipt(_receipt(found), int(found[5]), found[6])

    def _commit(self, receipt: Receipt) -> str:
        return f"{self.id}.{receipt.epoch}.{receipt.incarnation}.{receipt.revision}"

    def _is_signed(self, text: str, *context: str) -> bool:
        body, _, mac = text.rpartition(".")
        return hmac.compare_digest(mac, self._mac(body, *context))

    def _mac(self, body: str, *context: str) -> str:
        message = msgspec.json.encode((body, *context))  # unambiguous, whatever the names contain
        return _base64(hmac.digest(self._secret, message, "sha256"))


def key_id(text: str) -> str:
    """Return the ID of the key that a receipt or state names, empty if it names none: for error messages."""
    found = _RECEIPT_FORM.fullmatch(text) or _STATE_FORM.fullmatch(text)
    return found[1] if found else ""


def digest(primary: str, grants: Iterable[tuple[str, str]]) -> str:
    """Return the digest of an NC's primary and of its grants, as pairs of ID and address, in any order."""
    return _base64(hashlib.sha256(msgspec.json.encode((primary, sorted(grants)))).digest())


def _receipt(found: re.Match[str]) -> Receipt:
    return Receipt(int(found[2]), found[3], int(found[4]))


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value[:_MAC_BYTES]).rstrip(b"=").decode()
