"""Decide who may see the page when the server has a token.

A browser that has signed in has a cookie, which no script can read, no other site's page can send,
and which opens the page alone: to acquire and release leases, a client must show the token itself.
The cookie isn't the token, nor made of it: browsers send cookies to every port of a host, and
another server there must learn nothing that outlives this one.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qs

from starlette.requests import Request

from leasectl.server.page.document import render
from leasectl.server.tokens import Tokens
from leasectl.system.clock import Clock

# A working day.
SIGNED_IN_SECONDS = 12 * 3600


class SignIn:
    """Tells who may see the page.

    Args:
        tokens: One of them has to be shown; None: nothing.
        port: That the server listens at; another at the same host has another cookie.
        clock: Where times come from.
    """

    def __init__(self, tokens: Tokens | None, *, port: int, clock: Clock) -> None:
        self._tokens = tokens
        self._cookie = f"leasectl-page-{port}"
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def lets_in(self, request: Request) -> bool:
        """Return whether a request may see the page."""
        if self._tokens is None or self._tokens.shown_by(request):
            return True
        return self._is_good(request.cookies.get(self._cookie, ""))

    def accepts(self, form: bytes) -> bool:
        """Tell whether what was sent with the form holds the token."""
        shown = _field(form, "token").strip()
        return self._tokens is not None and self._tokens.find(shown) is not None

    def cookie(self, *, over_tls: bool) -> str:
        """The value of Set-Cookie for who has just signed in.

        It has no path: browsers take that of the page, wherever a proxy shows it.
        """
        until = str(int(self._clock.elapsed()) + SIGNED_IN_SECONDS)
        return self._set(f"{until}.{self._signature(until)}", SIGNED_IN_SECONDS, over_tls)

    def no_cookie(self, *, over_tls: bool) -> str:
        """The value of Set-Cookie for who signs out."""
        return self._set("", 0, over_tls)

    def _set(self, value: str, seconds: int, over_tls: bool) -> str:
        secure = "; Secure" if over_tls else ""
        return f"{self._cookie}={value}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    def _is_good(self, value: str) -> bool:
        until, _, shown = value.partition(".")
        if not hmac.compare_digest(shown.encode(), self._signature(until).encode()):
            return False
        return int(until) > self._clock.elapsed()  # it is as we have written it

    def _signature(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), "sha256").hexdigest()


def wants_to_leave(form: bytes) -> bool:
    """Tell whether what was sent is of the form that signs out."""
    return bool(_field(form, "out"))


def _field(form: bytes, name: str) -> str:
    """What a form says for a field; empty when it doesn't."""
    try:
        return "".join(parse_qs(form.decode(), max_num_fields=10).get(name, ()))
    except ValueError:
        return ""


def sign_in_page(*, was_wrong: bool) -> str:
    """What who hasn't signed in sees.

    Args:
        was_wrong: The token that was just sent isn't the one.
    """
    return render("sign_in.html", title="leasectl: sign in", was_wrong=was_wrong)
