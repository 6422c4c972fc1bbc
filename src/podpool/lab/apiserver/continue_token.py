"""Where a list goes on, as a client hands it back."""

import base64

import msgspec

from podpool.lab.apiserver.status_errors import bad_request


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The version that a list shows, and the last key that was told."""

    revision: int
    after: str

    def text(self) -> str:
        """Write it down."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def read_token(text: str) -> Token:
    """Read what a client hands back."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=Token)
    except (ValueError, msgspec.DecodeError):
        raise bad_request("continue key is not valid") from None
