"""The page's paths and their answers."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from leasectl.server.connection import connection_of
from leasectl.server.page.document import headers
from leasectl.server.page.editions import Body, body_of
from leasectl.server.page.live import Live, TooMany
from leasectl.server.page.sign_in import SignIn, sign_in_page, wants_to_leave
from leasectl.server.page.view import parse_view
from leasectl.server.responses import read_body, refusal

PAGE = "/"
CHANGES = "/leasectl/page/changes"

_LONGEST_FORM_BYTES = 16384
_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Page:
    """What the page's paths do.

    Args:
        live: What is shown.
        sign_in: Who may see it.
    """

    def __init__(self, live: Live, sign_in: SignIn) -> None:
        self._live = live
        self._sign_in = sign_in

    async def show(self, request: Request) -> Response:
        """The page, or the form to sign in with."""
        if not self._sign_in.lets_in(request):
            return _sign_in_form(request, was_wrong=False)
        return _html(request, await self._live.whole(parse_view(request.query_params)))

    async def change(self, request: Request) -> Response:
        """Sign in, or out."""
        try:
            form = await read_body(request, longest_bytes=_LONGEST_FORM_BYTES)
        except ValueError as error:
            return refusal(400, f"request body: {error}")
        over_tls = request.headers.get("x-forwarded-proto") == "https"
        if wants_to_leave(form):
            return _to_the_page(self._sign_in.no_cookie(over_tls=over_tls))
        if self._sign_in.accepts(form):
            return _to_the_page(self._sign_in.cookie(over_tls=over_tls))
        return _sign_in_form(request, was_wrong=True)

    async def changes(self, request: Request) -> Response:
        """What is new to a page: an answer as soon as there is something."""
        if not self._sign_in.lets_in(request):
            return refusal(401, "sign in, or show the bearer token", _ASKING)
        try:
            query = request.query_params
            after, view = query.get("after", ""), parse_view(query)
            news = await self._live.news(after, view, connection_of(request).gone)
        except TooMany:
            return refusal(503, "too many pages are open", {"Retry-After": "10", **_NO_STORE})
        if news is None:
            return Response(status_code=204, headers=_NO_STORE)
        return _answer(request, news, "application/json", _NO_STORE)


_ASKING = {"WWW-Authenticate": "Bearer", **_NO_STORE}


def _sign_in_form(request: Request, *, was_wrong: bool) -> Response:
    answer = _html(request, body_of(sign_in_page(was_wrong=was_wrong)))
    answer.status_code = 401
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _to_the_page(cookie: str) -> Response:
    # Relative, as only browsers know where a proxy shows the page.
    return Response(status_code=303, headers={"Location": "./", "Set-Cookie": cookie, **_NO_STORE})


def _html(request: Request, body: Body) -> Response:
    return _answer(request, body, "text/html; charset=utf-8", headers())


def _answer(request: Request, body: Body, kind: str, more: Mapping[str, str]) -> Response:
    """Return a response, compressed if the client accepts that."""
    taken = {"Content-Type": kind, "Vary": "Accept-Encoding", **more}
    accepted = request.headers.get("accept-encoding", "")
    if "gzip" not in (each.partition(";")[0].strip() for each in accepted.split(",")):
        return Response(body.plain, headers=taken)
    return Response(body.packed, headers={"Content-Encoding": "gzip", **taken})
