"""The token that clients show, where the server asks for one."""

from __future__ import annotations

import hmac

from starlette.requests import Request


class BearerToken:
    """A token. How long it takes to refuse another doesn't tell how much of it was right.

    Args:
        token: As its file has it.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_shown_by(self, request: Request) -> bool:
        """Tell whether a request carries it."""
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.equals(shown)

    def equals(self, text: str) -> bool:
        """Tell whether a text is the token."""
        return hmac.compare_digest(text.encode(), self._token)
