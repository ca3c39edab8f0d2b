"""The lease proxy's paths, methods, codes and texts, as in ci-operator.

``POST /lease/acquire?type=T&count=N`` and ``POST /lease/release`` with ``{"names": [...]}``. What
is ours beside that: an `Idempotency-Key` is sent back to say that it was heeded; a release of no
names with a key undoes what was asked for with that key; a `Leasectl-Count` says how many are going
to be asked for, one by one, so that what the pool could never give is refused at once; ``/healthz``
and ``/metrics``; ``GET /leasectl/v1/status``, for one pool with ``?type=T``: what ``leasectl status
--json`` shows; and the page at ``/``.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from leasectl.backends.proxy.protocol import COUNT_IN_ALL
from leasectl.backends.proxy.status import ERROR, LONGEST_STATUS_BYTES, STATUS
from leasectl.backends.serve.protocol import ACQUIRE, CALL, ROOT, WAIT
from leasectl.errors import InvalidRequest, LeaseError, NoLease, NotFound
from leasectl.leases.request import LARGEST_COUNT
from leasectl.leases.service import Service
from leasectl.pools import admin
from leasectl.pools.counted import count
from leasectl.pools.overview_json import encode_counts, encode_overview
from leasectl.server.connection import HEALTH, connection_of
from leasectl.server.extension import Extension
from leasectl.server.give_backs import (
    LONGEST_KEY,
    NotReleased,
    is_key,
    served_id,
    served_request,
)
from leasectl.server.metrics import Meter, Notices
from leasectl.server.origins import OriginCheck
from leasectl.server.page.routes import CHANGES, PAGE, Page
from leasectl.server.responses import (
    GrantResponse,
    Health,
    names_body,
    quoted,
    read_body,
    refusal,
)
from leasectl.server.served_leases import ServedLeases
from leasectl.server.threads import TooManyWait
from leasectl.server.tokens import TOKEN_KEY, Network, Tokens, client_address, token_of
from leasectl.server.waits import Wanted
from leasectl.text.naming import LONGEST_TYPE, is_name
from leasectl.text.wording import printable

IDEMPOTENCY_KEY = "Idempotency-Key"
# Who a client says it is, for people.
HOLDER = "Leasectl-Holder"
LONGEST_BODY_BYTES = 1 << 20
_COUNT = re.compile(r"[0-9]{1,19}", re.ASCII)

Handler = Callable[[Request], Awaitable[Response]]


def _nothing_there() -> Response:
    return refusal(404, "404 page not found")


class _Endpoint:
    """One path: its methods, who may use it, and what an error of the server looks like.

    Other methods on a hidden path get the answer of a path that isn't there, as the proxy of
    ci-operator has no page.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        tokens: Tokens | None,
        notices: Notices,
        *,
        is_hidden: bool = False,
    ) -> None:
        self._handlers = handlers
        self._tokens = tokens
        self._notices = notices
        self._is_hidden = is_hidden

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        handler = self._handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            if self._is_hidden:
                return _nothing_there()
            (allowed,) = self._handlers
            text = f"Method {request.method} not allowed, {allowed} requests only."
            return refusal(405, text, {"Allow": allowed})
        if self._tokens is not None:
            token = self._tokens.shown_by(request)
            if token is None:
                return refusal(
                    401,
                    "bearer token required: the server's --token-file has it",
                    {"WWW-Authenticate": "Bearer"},
                )
            request.scope[TOKEN_KEY] = token
        try:
            return await handler(request)
        except LeaseError as error:
            self._notices.failed(_name(request), error)
            return refusal(503, str(error))
        except Exception as error:
            what, kind = _name(request), type(error)
            self._notices.tell((what, kind), f"{what} failed: {kind.__name__}: {error}")
            return refusal(500, f"unexpected failure: {kind.__name__}")


def _name(request: Request) -> str:
    return f"{request.method} {request.url.path}"


class Api:
    """What the paths do.

    Args:
        leases: What does the work.
        page: What a person sees at ``/``; it knows itself who may.
        tokens: Clients have to show one of them as a bearer token; None: no need.
        trusted: The proxies whose word for a client's address counts.
        own_name: The host name that the server was told to listen at, for clients without a token.

    Attributes:
        app: The ASGI application.
    """

    app: ASGIApp

    def __init__(
        self,
        leases: ServedLeases,
        page: Page,
        *,
        tokens: Tokens | None,
        trusted: tuple[Network, ...],
        own_name: str,
    ) -> None:
        service = leases.service
        self._trusted = trusted
        self._leases = leases
        self._notices = leases.notices
        self._meter = Meter()
        self._health = Health(service.state, service.kind.open_probe(service.context))
        self._extension = extension = Extension(leases, trusted=trusted)
        of_page: dict[str, Handler] = {"GET": page.show}
        if tokens is not None:
            of_page["POST"] = page.change

        def at(path: str, *, open_: bool = False, **handlers: Handler) -> Route:
            return Route(path, _Endpoint(handlers, None if open_ else tokens, self._notices))

        router = Router(
            [
                at("/lease/acquire", POST=_with_key(self.acquire)),
                at("/lease/release", POST=_with_key(self.release)),
                at("/metrics", GET=self.metrics),
                at(STATUS, GET=self.status),
                at(ROOT, GET=extension.describe, open_=True),
                at(ACQUIRE, POST=extension.acquire),
                at(f"{CALL}{{name}}", POST=extension.call),
                at(WAIT, POST=extension.wait),
                at(HEALTH, GET=self.healthz, open_=True),
                Route(PAGE, _Endpoint(of_page, None, self._notices, is_hidden=True)),
                at(CHANGES, GET=page.changes, open_=True),
            ],
            redirect_slashes=False,
            default=_nothing_there(),
        )
        own_names = (own_name.lower(), socket.gethostname().lower())
        self.app = OriginCheck(router, own_names if tokens is None else None)

    async def begin_counting(self) -> None:
        """Count events from now on; where that fails, from the first time that metrics are read."""
        with contextlib.suppress(LeaseError):
            await self._leases.do(lambda service: self._meter.begin(service.events))

    def close(self) -> None:
        """End the waits for events."""
        self._extension.close()

    async def acquire(self, request: Request, key: str | None) -> Response:
        pool_type = request.query_params.get("type", "")
        count = request.query_params.get("count") or "1"
        if not pool_type:
            return refusal(400, "type is required")
        if not _COUNT.fullmatch(count) or int(count) > LARGEST_COUNT:
            return refusal(400, f'parameter "count" is not valid: {count[:100]}')
        if int(count) == 0:
            return Response(names_body([]), media_type="application/json")
        connection, token, rules = connection_of(request), token_of(request), self._leases.rules
        try:
            if not is_name(pool_type) or len(pool_type) > LONGEST_TYPE:
                raise NotFound(pool_type)
            wanted = served_request(
                pool_type,
                int(count),
                client=client_address(request, self._trusted),
                key=key,
                token=token.name,
                holder=printable(request.headers.get(HOLDER, ""), longest=200),
                limit_seconds=rules.lease_limit_seconds,
            )
            handle_id = served_id(pool_type, key, token.secret or None)
            handle = await self._leases.get(
                Wanted(handle_id, wanted, key, wait_seconds=rules.acquire_seconds),
                gone=connection.gone,
                in_all=_count_in_all(request),
            )
        except LeaseError as error:
            self._notices.failed(_name(request), error)
            status, reason = _why_not(error)
            return refusal(status, f"Failed to acquire lease {quoted(pool_type)}: {reason}")
        return GrantResponse(
            names_body(handle.names),
            connection,
            lambda delivered: self._leases.answered(handle, delivered),
        )

    async def release(self, request: Request, key: str | None) -> Response:
        try:
            names = _parse_names(await read_body(request, longest_bytes=LONGEST_BODY_BYTES))
        except ValueError as error:
            return refusal(400, f"unmarshal request body: {error}")
        try:
            if key is not None and not names:
                await self._leases.withdraw(key, token_of(request))
            await self._leases.release(names, key=key)
        except NotReleased as error:
            self._notices.failed(_name(request), error.reason)
            done = " ".join(error.released)
            return refusal(500, f"Failed to release lease {error.name}: {error}\nReleased: {done}")
        except LeaseError as error:
            self._notices.failed(_name(request), error)
            return refusal(500, f"Failed to release: {error}")
        return Response(status_code=204)

    async def healthz(self, request: Request) -> Response:
        if self._leases.is_closing:
            return refusal(503, "shutting down")
        await self._health.check()
        return PlainTextResponse("ok\n")

    async def metrics(self, request: Request) -> Response:
        text = await self._leases.do(self._metrics)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _metrics(self, service: Service) -> str:
        self._meter.read(service.events)
        if service.kind.counts_types:
            return self._meter.text_of_counts(count(service, None, others=self._meter.types).types)
        return self._meter.text(admin.look(service))

    async def status(self, request: Request) -> Response:
        pool_type = request.query_params.get("type")
        try:
            if pool_type is not None and not is_name(pool_type):
                raise NotFound(f'no pool "{printable(pool_type)}"')
            told = await self._leases.do(lambda service: self._status(service, pool_type))
        except NotFound as error:
            return JSONResponse({ERROR: str(error)}, 404)
        answer = JSONResponse(told)
        if len(answer.body) > LONGEST_STATUS_BYTES:
            return refusal(413, "too many resources to be shown at once; ask for one type")
        return answer

    def _status(self, service: Service, pool_type: str | None) -> dict[str, object]:
        if service.kind.counts_types:
            return encode_counts(count(service, pool_type, others=self._meter.types))
        return encode_overview(admin.look(service, pool_type))


def _count_in_all(request: Request) -> int:
    """How many one of our clients will ask for; 1 where nothing says so."""
    text = request.headers.get(COUNT_IN_ALL, "1")
    return int(text) if _COUNT.fullmatch(text) else 1


def _why_not(error: LeaseError) -> tuple[int, str]:
    """The code and the words for a request that got nothing; ci-operator's where it has some."""
    if isinstance(error, NotFound):
        return 404, "resource type not found"
    if isinstance(error, InvalidRequest):
        return 400, str(error)
    if isinstance(error, TooManyWait):
        return 503, str(error)
    if type(error) is NoLease:
        return 500, f"context deadline exceeded: {error}"
    return 500, str(error)


def _with_key(work: Callable[[Request, str | None], Awaitable[Response]]) -> Handler:
    """Check the key of a request, and send it back to say that it was heeded."""

    async def handler(request: Request) -> Response:
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is None:
            return await work(request, None)
        if not is_key(key):
            what = f"is not 1 to {LONGEST_KEY} printable ASCII characters"
            return refusal(400, f"{IDEMPOTENCY_KEY} {what}")
        answer = await work(request, key)
        answer.headers[IDEMPOTENCY_KEY] = key
        return answer

    return handler


def _parse_names(body: bytes) -> list[str]:
    """Read what is to be released; as in Go, what isn't there, or null, is empty, and a key is the
    same however it is spelt."""
    if not body:
        raise ValueError("unexpected end of JSON input")
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("invalid JSON") from None
    if decoded is None:
        return []
    if not isinstance(decoded, Mapping):
        raise ValueError("not an object")
    given = {key.lower(): value for key, value in decoded.items()}
    names = given.get("names")
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("names are not a list of strings")
    return names
