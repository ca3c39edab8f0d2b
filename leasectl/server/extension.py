"""The extension of the lease proxy's protocol for clients of leasectl.

A client's claim key is ``<handle>/<acquisition>``. Its handle here has the id
``<handle>..<acquisition>``, which is the claim key on the embedded pool; on another store the claim
key has one more part. Claims that this server hasn't granted keep theirs, with a ``=`` before it.

The client holds the lease: it renews by itself, so a lease of a client that is gone ends with its
ttl. Nothing here renews it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import claim_key_of
from leasectl.backends.serve.protocol import (
    ADMIN_CALLS,
    CALLS,
    EVENTS_AT_ONCE,
    LONGEST_BODY_BYTES,
    ROUND,
    VERSION,
    WAIT_SECONDS,
    AcquireBody,
    Found,
    Granted,
    News,
    Renewal,
    decode,
    encode,
    encode_error,
    status_of,
)
from leasectl.engines.notes import Note, NoteChange
from leasectl.engines.values import Guard, ValueChange
from leasectl.errors import Cancelled, InvalidRequest, LeaseError, NotAllowed, NotFound
from leasectl.leases.marks import MarkState, parse_mark
from leasectl.leases.release import finish, release
from leasectl.leases.request import check_ttl
from leasectl.leases.service import Service
from leasectl.model import Handle, Labels, Lease, ReleasedBy, ReleaseTarget, Request
from leasectl.pools.memberships import remove
from leasectl.pools.properties import NO_CHANGE, add_resources
from leasectl.server.connection import connection_of
from leasectl.server.give_backs import SERVER_LABELS, served_labels, token_in
from leasectl.server.news import EventNews
from leasectl.server.responses import GrantResponse, read_body, refusal
from leasectl.server.served_leases import ServedLeases
from leasectl.server.threads import TooManyWait
from leasectl.server.tokens import Network, Token, client_address, token_of
from leasectl.server.waits import AskAgain, Wanted
from leasectl.state.event import Event, EventFilter, Missed
from leasectl.state.rows import OF_EXTENSION
from leasectl.text.naming import (
    LONGEST_NAME,
    LONGEST_TYPE,
    is_name,
    is_reserved,
    is_resource_name,
)
from leasectl.text.wording import printable

_LONGEST_TEXT = 4096
_RAW = "="
_CLAIM_KEY = re.compile(r"[^/=]+/[0-9]{1,10}", re.ASCII)
# Arguments whose claim keys are still the client's when a call checks them.
_CHECKED_KEYS = ("claim_key", "guard")
_ROUND = re.compile("[1-9][0-9]{0,4}", re.ASCII)
_SERVED = re.compile(r"(?P<handle>.+)\.\.(?P<acquisition>[0-9]{1,10})(?:/[0-9]+)?", re.ASCII)


class _Changed(LeaseError):
    """What a change was decided by isn't there any more."""


class Extension:
    """What the paths of the extension do.

    Args:
        leases: What does the work.
        trusted: The proxies whose word for a client's address counts.
    """

    def __init__(self, leases: ServedLeases, *, trusted: tuple[Network, ...]) -> None:
        self._leases = leases
        self._notices = notices = leases.notices
        self._trusted = trusted
        self._news = EventNews(leases.do, notices)

    def close(self) -> None:
        """Watch no longer."""
        self._news.close()

    async def describe(self, request: HttpRequest) -> Response:
        """Say that this is a leasectl serve, and what it can do."""
        kind = self._leases.service.kind
        return JSONResponse(
            {
                "server": "leasectl",
                "versions": [VERSION] if kind.has_pools else [],
                "calls": list(CALLS) if kind.has_pools else [],
            }
        )

    async def acquire(self, request: HttpRequest) -> Response:
        return await self._answer(request, self._acquire)

    async def call(self, request: HttpRequest) -> Response:
        return await self._answer(request, self._call)

    async def wait(self, request: HttpRequest) -> Response:
        return await self._answer(request, self._wait)

    async def _answer(self, request: HttpRequest, work: Callable[..., Any]) -> Response:
        try:
            data = json.loads(await read_body(request, longest_bytes=LONGEST_BODY_BYTES))
            if not isinstance(data, dict):
                raise ValueError("not an object")
            body = {
                str(name): decode(
                    value if name in _CHECKED_KEYS else _with_keys(value, self._inward)
                )
                for name, value in data.items()
            }
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return refusal(400, f"request body: {error}")
        try:
            answer: Response = await work(request, body)
            return answer
        except Cancelled as error:
            if self._leases.is_closing:
                return refusal(503, "the server is shutting down")
            return _error(error)
        except TooManyWait as error:
            return refusal(503, str(error))
        except LeaseError as error:
            return _error(error)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            self._notices.tell((request.url.path,), f"{request.url.path} failed: {error!r}")
            return refusal(400, f"request body: {error}")

    # ---- acquire

    async def _acquire(self, request: HttpRequest, body: Mapping[str, Any]) -> Response:
        asked = AcquireBody(**body)
        connection, token = connection_of(request), token_of(request)
        labels = served_labels(client_address(request, self._trusted), token.name)
        wanted = Wanted(
            _id_of(asked.claim_key),
            _checked(asked, labels, token),
            asked.claim_key,
            asked.holder_identity,
            asked.wait_seconds,
            _round_seconds(request),
        )
        found = self._leases.service.handles.load(wanted.handle_id)
        _check_token(found, token)
        try:
            handle = await self._leases.get(wanted, gone=connection.gone)
        except AskAgain:
            return Response(_encoded(None), media_type="application/json")
        granted = Granted(handle.leases, handle.granted_type)
        return GrantResponse(
            _encoded(granted),
            connection,
            lambda delivered: self._leases.answered(handle, delivered),
        )

    # ---- calls

    async def _call(self, request: HttpRequest, body: dict[str, Any]) -> Response:
        name = str(request.path_params["name"])
        if name not in CALLS or not body.keys() <= set(CALLS[name]):
            raise InvalidRequest(
                f"unknown call {printable(name)} with: {printable(' '.join(body))}"
            )
        token = token_of(request)
        # The pools of `once` come and go with its works.
        is_of_once = is_reserved(str(body.get("pool_type", "")))
        if name in ADMIN_CALLS and not is_of_once and "admin" not in token.rights:
            raise NotAllowed(
                f"changing pools needs an admin token, and {_described(token)}; see --token-file "
                "of leasectl serve"
            )
        for key, value in body.items():
            _check_argument(key, value)

        def perform(service: Service) -> Any:
            if name in ADMIN_CALLS:
                # Events of pools name whoever changes them.
                by = token.name or client_address(request, self._trusted)
                caller = Caller(f"token:{by}" if token.name else by, "serve")
                service = Service(service.state, service.context._replace(caller=caller))
            return ServedCalls(service, token).perform(name, body)

        result = await self._leases.do(perform)
        if name == "engine.withdraw":
            await self._leases.end_waits(str(body["claim_key"]), token)  # also what comes late
        return Response(_encoded(result), media_type="application/json")

    # ---- wait

    async def _wait(self, request: HttpRequest, body: Mapping[str, Any]) -> Response:
        claim_key, after = body["claim_key"], int(body["after"])
        handle_id = None if claim_key is None else _id_of(str(claim_key))
        if handle_id is not None:
            _check_token(self._leases.service.handles.load(handle_id), token_of(request))
        last, events = await self._news.wait(
            after, handle_id, seconds=WAIT_SECONDS, gone=connection_of(request).gone
        )
        news = News(last, is_changed=events is not None)
        if handle_id is not None and events:
            reasons = [each.reason for each in events if each.kind == "lost"]
            news = news._replace(reason=reasons[-1] if reasons else "")
            if all(each.kind == "noted" for each in events):
                notes = await self._leases.do(
                    lambda service: service.notes.of_claims(_claim_key(service, str(claim_key)))
                )
                news = news._replace(notes=notes)
        return Response(_encoded(news), media_type="application/json")

    def _inward(self, key: str) -> str:
        return _claim_key(self._leases.service, key)


class ServedCalls:
    """The calls, on the service of the thread that makes them.

    Args:
        service: On what is served.
        token: What the client shows.
    """

    def __init__(self, service: Service, token: Token) -> None:
        self._service = service
        self._token = token

    def perform(self, name: str, named: dict[str, Any]) -> Any:
        """Make a call; claim keys are still the client's."""
        side, _, method = name.partition(".")
        special = getattr(self, f"{side}_{method}", None)
        if special is not None:
            return special(**named)
        if "claim_key" in named:
            named = {**named, "claim_key": _claim_key(self._service, named["claim_key"])}
        return getattr(getattr(self._service, side), method)(**named)

    def engine_withdraw(self, claim_key: str, why: str = "") -> None:
        self._handle(claim_key)
        with self._service.atomic():
            self._service.backend.withdraw(_claim_key(self._service, claim_key), why)

    def engine_free(
        self, claim_key: str, names: tuple[str, ...] | None = None, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        service, handle = self._service, self._handle(claim_key)
        if names == ():  # to the verbs that means all
            return ()
        if handle is None:
            with service.atomic():
                key = _claim_key(service, claim_key)
                return tuple(service.backend.release(key, names or (), by=by))
        if names is None:
            return finish(service, handle, by=by)
        freed = release(service, ReleaseTarget(handle.id, handle.acquisition, names, by))
        left = service.handles.load(handle.id)
        if left is not None and left.state == "released" and not left.lost:
            with service.state.transaction():
                service.handles.forget(left.id, left.acquisition)
        return freed

    def engine_renew(self, claim_key: str, ttl_seconds: float | None = None) -> Renewal:
        self._handle(claim_key)
        key = _claim_key(self._service, claim_key)
        with self._service.atomic():
            names = self._service.backend.renew(key, (), ttl_seconds=ttl_seconds)
        return Renewal(names, self._service.notes.of_claims(key) if names else ())

    def pools_add_resources(self, pool_type: str, names: tuple[str, ...]) -> None:
        with self._service.atomic():
            add_resources(self._service.members, pool_type, names, NO_CHANGE, are_new=True)

    def pools_remove_resources(
        self, pool_type: str, names: tuple[str, ...], force: bool = False
    ) -> None:
        remove(self._service, pool_type, names, force=force)

    def values_change(
        self,
        changes: tuple[ValueChange, ...],
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        if event is not None and not event.kind.startswith("work "):
            raise NotAllowed("a client can add only events of leasectl once")
        if guard is None:
            return self._service.values.change(changes, event=event)
        service, handle = self._service, self._handle(guard.claim_key)
        guard = guard._replace(claim_key=_claim_key(service, guard.claim_key))
        with service.atomic():
            is_changed = service.values.change(changes, guard=guard, event=event)
            if is_changed and guard.frees and handle is not None:
                with service.state.transaction():
                    service.handles.forget(handle.id, handle.acquisition)
        return is_changed

    def notes_change(self, changes: tuple[NoteChange, ...]) -> tuple[bool, ...]:
        """Anybody may ask for a lease, and ask no more; only its holder answers."""
        allowed = [
            each.after is None or _is_mark(each.after, "marked") or self._holds(each)
            for each in changes
        ]
        done = iter(self._service.notes.change(list(itertools.compress(changes, allowed))))
        return tuple([is_allowed and next(done) for is_allowed in allowed])

    def notes_free(self, notes: tuple[Note, ...], by: ReleasedBy) -> tuple[str, ...]:
        ready = [each for each in notes if _is_mark(each.text, "ready") or self._holds(each)]
        return self._service.notes.free(ready, by=by)

    def _holds(self, at: Note | NoteChange) -> bool:
        """Tell whether a claim is one of the token's clients, as far as the records say."""
        if "admin" in self._token.rights:
            return True
        handle = self._service.handles.holding(at.name, prefer=self._service.is_here)
        if handle is None or token_in(handle.request) != self._token.name:
            return False
        return any((each.name, each.fence) == (at.name, at.fence) for each in handle.leases)

    def pools_pools(self, pool_type: str | None = None) -> Any:
        with self._service.pools.looking(pool_type):
            return self._service.pools.pools(pool_type)

    def pools_end_early(
        self, claim_key: str, names: tuple[str, ...], reason: str, at_once: bool = False
    ) -> tuple[str, ...]:
        with self._service.atomic():
            return self._service.pools.end_early(
                _claim_key(self._service, claim_key),
                names,
                guard=None,
                reason=reason,
                at_once=at_once,
            )

    def members_replace(
        self, before: Any, after: Any, seen: Any, claimant: Any = None
    ) -> tuple[Any, tuple[Lease, ...]] | None:
        becomes = {was.name: (was, then) for was, then in zip(before, after)}

        def decide(member: Any, pools: Any) -> Any:
            was, then = becomes[member.name]
            if claimant is None and (member, pools) == (then, seen):
                return then  # by the same request, whose answer was lost
            if (member, pools) != (was, seen):
                raise _Changed
            return then

        try:
            updated = self._service.members.update(list(becomes), decide, claimant=claimant)
        except _Changed:
            return None
        return updated.after, updated.leases

    def members_replace_belonging(self, before: Any, after: Any) -> bool:
        def change(pools: Any) -> Any:
            if pools not in (before, after):  # that by the same request, whose answer was lost
                raise _Changed
            return after

        try:
            self._service.members.change_belonging(change)
        except _Changed:
            return False
        return True

    def events_read(self, wanted: EventFilter, after: int = 0) -> Found:
        missed: list[Missed] = []
        store = self._service.events
        read = store.read(wanted._replace(handle=None), after=after, missed=missed.append)
        events = (event for event in map(_shown, read) if wanted.wants(event))
        return Found(tuple(itertools.islice(events, EVENTS_AT_ONCE)), tuple(missed))

    def events_latest(
        self, wanted: EventFilter, number: int, only_recent: bool = False
    ) -> tuple[Event, ...]:
        log = self._service.events
        if wanted.handle is None:
            found = log.latest(wanted, number, only_recent=only_recent)
            return tuple(map(_shown, found))
        shown = map(_shown, log.read(wanted._replace(handle=None)))
        return tuple([event for event in shown if wanted.wants(event)][: -number - 1 : -1])

    def _handle(self, claim_key: str) -> Handle | None:
        """Return the record of a claim key, once it is known to be one of the token's clients."""
        _check_form(claim_key, self._token)
        handle = self._service.handles.load(_id_of(claim_key))
        _check_token(handle, self._token)
        return handle if handle is not None and handle.served else None


def _round_seconds(request: HttpRequest) -> int | None:
    """After how many seconds a client wants to repeat its request."""
    said = request.headers.get(ROUND, "")
    return int(said) if _ROUND.fullmatch(said) else None


def _shown(event: Event) -> Event:
    """Return an event with the client's handle and acquisition."""
    found = _SERVED.fullmatch(event.handle)
    if found is None:
        return event
    return event._replace(handle=found["handle"], acquisition=int(found["acquisition"]))


def _id_of(claim_key: str) -> str:
    """Return the id of the handle here for a client's claim key."""
    return claim_key.replace("/", OF_EXTENSION)


def _claim_key(service: Service, key: str) -> str:
    """Return the store's claim key for the client's."""
    if key.startswith(_RAW):
        return key[len(_RAW) :]
    handle = service.handles.load(_id_of(key))
    return _id_of(key) if handle is None else claim_key_of(handle)


def _outward(claim_key: str) -> str:
    """Return the client's claim key for the store's."""
    found = _SERVED.fullmatch(claim_key)
    if found is not None:
        return f"{found['handle']}/{found['acquisition']}"
    return f"{_RAW}{claim_key}" if "/" in claim_key else claim_key


def _with_keys(data: Any, change: Callable[[str], str]) -> Any:
    """Return JSON with its claim keys changed."""
    if isinstance(data, list):
        return [_with_keys(each, change) for each in data]
    if not isinstance(data, dict):
        return data
    return {
        name: change(each)
        if name == "claim_key" and isinstance(each, str)
        else _with_keys(each, change)
        for name, each in data.items()
    }


def _encoded(result: object) -> bytes:
    body = {"result": _with_keys(encode(result), _outward)}
    return json.dumps(body, separators=(",", ":")).encode()


def _error(error: LeaseError) -> Response:
    return JSONResponse(encode_error(error), status_of(error))


def _described(token: Token) -> str:
    if token.name:
        return f'"{token.name}" has only the rights {" ".join(sorted(token.rights))}'
    return "this token may only use pools" if token.text else "this server has no tokens"


def _check_token(handle: Handle | None, token: Token) -> None:
    """Refuse the lease of another token's client."""
    if handle is None or "admin" in token.rights:
        return
    name = token_in(handle.request)
    if name != token.name:
        raise NotAllowed(f'this lease was acquired with another token, "{name}"')


def _check_form(claim_key: str, token: Token) -> None:
    """Refuse a key that means what was granted elsewhere, or more than one acquisition."""
    if "admin" not in token.rights and _CLAIM_KEY.fullmatch(claim_key) is None:
        raise NotAllowed(
            f'claim_key "{printable(claim_key, longest=100)}" isn\'t written as '
            "<handle>/<acquisition>; any other form needs an admin token"
        )


def _is_mark(text: str, state: MarkState) -> bool:
    mark = parse_mark(text)
    return mark is not None and mark.state == state


def _check_argument(name: str, value: Any) -> None:
    """Refuse names that no pool may have, and text that no terminal may see."""
    if name == "pool_type" and value is not None:
        _check_name(value, is_name, LONGEST_TYPE)
    elif name == "names":
        for each in value or ():
            _check_name(each, is_resource_name, LONGEST_NAME)
    elif isinstance(value, str) and not (value.isprintable() and len(value) <= _LONGEST_TEXT):
        raise InvalidRequest(f"invalid {name}: {printable(value, longest=100)}")


def _check_name(text: Any, is_good: Callable[[str], bool], longest: int) -> None:
    if not isinstance(text, str) or not is_good(text) or len(text) > longest:
        raise NotFound(f'no pool or resource "{printable(str(text), longest=100)}"')


def _checked(asked: AcquireBody, labels: Labels, token: Token) -> Request:
    """Return the request that a client's stands for here.

    What its holder does by itself is left out: the delayed release, and answers to a reclaim. So
    are labels that only a server gives.

    Raises:
        InvalidRequest: It can't be meant.
    """
    wanted = asked.request
    texts = (*(text for pair in wanted.labels for text in pair), asked.holder_identity)
    conditions = [text for key, value, _ in wanted.where for text in (key, value)]
    if not isinstance(wanted, Request):
        raise InvalidRequest("a request is missing")
    for each in wanted.types:
        _check_name(each, is_name, LONGEST_TYPE)
    if wanted.name is not None:
        _check_name(wanted.name, is_resource_name, LONGEST_NAME)
    for text in (*texts, *conditions):
        if not isinstance(text, str) or not text.isprintable() or len(text) > _LONGEST_TEXT:
            raise InvalidRequest(f"invalid text: {printable(str(text), longest=100)}")
    if asked.holder_identity.count("/") < 2:  # outside a job, its owner is one part
        raise InvalidRequest("a holder is <job>/<build>/<host>/<handle> or <owner>/<host>/<handle>")
    key = asked.claim_key
    if not isinstance(key, str) or not is_name(_id_of(key)) or len(key) > LONGEST_NAME:
        raise InvalidRequest(f"invalid claim_key: {printable(str(key), longest=100)}")
    _check_form(key, token)
    own_labels = [each for each in wanted.labels if not each[0].startswith(SERVER_LABELS)]
    if wanted.ttl_seconds is not None:
        check_ttl(float(wanted.ttl_seconds))
    return Request(
        type=wanted.type,
        count=int(wanted.count),
        name=wanted.name,
        ttl_seconds=None if wanted.ttl_seconds is None else float(wanted.ttl_seconds),
        labels=(*own_labels, *labels),
        other_types=wanted.other_types,
        needs_all=bool(wanted.needs_all),
        priority=int(wanted.priority),
        where=wanted.where,
    )
