"""Send one request to one member, with a token if etcd requires one.

Access takes TLS, and a token for a user and password. Each member forgets a token five minutes
after its last use, or when the member restarts. So a client whose token is rejected authenticates
again and repeats the request.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.answers import (
    CommonNameRefused,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    parse_answer,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.requests import Json
from leasectl.errors import NotAllowed
from leasectl.http.exchange import Client, trust_for
from leasectl.http.messages import Call
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.http.settings import NamedFile, Settings
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.engines.etcd.tokens import TokenStore


_LONGEST_BYTES = 64 * 1024
KEEP_ALIVE = "/v3/lease/keepalive"
_CONNECT_SECONDS = 1.0
_NAME_USER = "name a file that holds user:password in LEASECTL_USER_FILE"
# What is sent takes etcd time for each byte. It is made here, and so has no circles.
_TO_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
# Pools of many thousands of resources take a few MiB.
_LONGEST_ANSWER_BYTES = 64 << 20


class User(NamedTuple):
    """A user of etcd."""

    name: str
    password: str


def read_user(path: str) -> User:
    """Read ``user:password``, one line; all text after the first ":" is the password.

    Raises:
        FileUnreadable: The file isn't there, or may not be read.
        CorruptState: The file has another form. The message shows nothing of its content.
    """
    file = NamedFile("user file", path, "LEASECTL_USER_FILE")
    content = file.read(_LONGEST_BYTES)
    try:
        name, _, password = content.decode().rstrip("\r\n").partition(":")
    except UnicodeDecodeError:
        name = password = ""
    if not name or not password or not (name + password).isprintable():
        raise file.refused("doesn't hold user:password, on one line")
    return User(name, password)


class MemberAccess:
    """Send requests to the members of one cluster. Threads may share it, with a client each.

    Args:
        address: The members, and the prefix below which the user needs to be allowed everything.
        settings: The certificates, and the file with the user. No file is read before it is needed.
        clock: Where times come from.
        pause: Called with the seconds between two looks for another process's token.

    Attributes:
        endpoints: The members' base addresses, ``http://host:port``.
        keys: The keys below the prefix.
    """

    def __init__(
        self,
        address: EtcdAddress,
        settings: Settings,
        *,
        clock: Clock,
        pause: Callable[[float], object],
    ) -> None:
        self.endpoints = address.endpoints
        self.keys = Keys(address.prefix)
        self._clock = clock
        self._trust = trust_for(address.endpoints[0], settings)
        self._user_file = settings.user_file
        self._pause = pause
        self._tokens: TokenStore | None = None
        if settings.user_file is not None:
            from leasectl.engines.etcd.tokens import TokenStore

            self._tokens = TokenStore(address.endpoints, settings.user_file)
        # Of any thread: each is as good as the others.
        self._token: str | None = None  # None: not asked for; empty: etcd wants none

    def client(self) -> Client:
        """Return a client for one thread; a stream on it needs `headers` as well."""
        return Client(
            clock=Clock(),  # a member takes its time by this machine's, whatever ours is
            trust=self._trust,
            connect_seconds=_CONNECT_SECONDS,
            longest_bytes=_LONGEST_ANSWER_BYTES,
        )

    def ask_member(
        self,
        client: Client,
        member: int,
        path: str,
        body: Json,
        seconds: float,
        *,
        login_seconds: float = 0.0,
    ) -> Json:
        """Send a request to one member, with a new token if it rejects the one that we have.

        Args:
            client: A client that this thread alone uses meanwhile.
            member: The member's number among the endpoints.
            path: The path of the URL.
            body: The JSON.
            seconds: How long the request may take, without a login.
            login_seconds: How long it may take with a login, if that is longer: etcd goes on
                checking a password after its client has given up.

        Raises:
            NoAnswer: The member gave no usable answer.
            EtcdLeaseGone, FailedPrecondition, InvalidArgument: As `parse_answer`.
            BackendUnreachable: etcd can't do it at all, for any client.
            NotAllowed: etcd doesn't know the user, or the user may not do this.
            CorruptState, InvalidRequest: A file that is needed to ask can't be used.
        """
        start = self._clock.elapsed()
        until = start + seconds
        if self._tokens is None:
            try:
                return self._post(client, member, path, body, None, until)
            except Unauthenticated as refusal:
                raise NotAllowed(f"{self.endpoints[member]}: {refusal}; {_NAME_USER}") from refusal
        token = self._token if self._token is not None else self._tokens.load()
        if token is not None:
            with contextlib.suppress(Unauthenticated):
                answer = self._post(client, member, path, body, token, until)
                self._token = token
                return answer
        login_until = start + max(seconds, login_seconds)
        token = self._authenticate(client, member, self._tokens, login_until, refused=token)
        until = max(until, min(login_until, self._clock.elapsed() + seconds))
        try:
            return self._post(client, member, path, body, token, until)
        except Unauthenticated as refusal:
            raise NoAnswer(str(refusal), sent=False) from refusal

    def headers(self, client: Client, member: int, seconds: float) -> dict[str, str]:
        """Return the headers of a stream at a member, with a token that is valid there.

        etcd looks at the token when the stream begins and never again. It answers a stream that has
        an invalid token with 200, and cancels the watch.

        Args:
            client: The stream's client.
            member: The member's number.
            seconds: How long it may take to check the token at this member, or to get a valid one.

        Raises:
            NoAnswer: The member gave no usable answer.
            NotAllowed: etcd doesn't know the user.
        """
        if self._tokens is None:
            return {}
        until = self._clock.elapsed() + seconds
        if self._token:
            # With a token, even what does nothing is refused unless that is valid.
            self.ask_member(client, member, "/v3/kv/txn", {}, seconds)
            return _headers(self._token)
        token = self._tokens.load()
        if token:
            self._token = token
            return self.headers(client, member, seconds)
        return _headers(self._authenticate(client, member, self._tokens, until, refused=token))

    def _authenticate(
        self, client: Client, member: int, tokens: TokenStore, until: float, *, refused: str | None
    ) -> str:
        """Return a token other than the refused one: of another process, or a new one."""
        left = until - self._clock.elapsed()
        with tokens.alone(left / 2, self._pause):
            token = tokens.load()
            if token is None or token in (refused, self._token):
                token = self._new_token(client, member, until)
                tokens.keep(token)
        self._token = token
        return token

    def _new_token(self, client: Client, member: int, until: float) -> str:
        assert self._user_file is not None
        user_file, user = self._user_file, read_user(self._user_file)
        body = {"name": user.name, "password": user.password}
        try:
            said = self._post(client, member, "/v3/auth/authenticate", body, None, until)
        except FailedPrecondition:
            said = {"token": ""}  # authentication isn't enabled
        except InvalidArgument as refusal:
            raise NotAllowed(
                f"{self.endpoints[member]}: etcd doesn't take the user and password in {user_file}"
            ) from refusal
        except (NoAnswer, Unauthenticated) as reason:
            why = reason if isinstance(reason, NoAnswer) else NoAnswer(str(reason))
            raise NoAnswer(
                f"no token: {why}", advice=why.advice, sent=False, lasting=why.lasting
            ) from reason
        token = str(said.get("token", ""))
        if not token.isascii() or not token.isprintable():
            raise NoAnswer("its token can't be read", sent=False)
        return token

    def _post(
        self, client: Client, member: int, path: str, body: Json, token: str | None, until: float
    ) -> Json:
        endpoint = self.endpoints[member]
        seconds = until - self._clock.elapsed()
        if seconds <= 0:
            raise NoAnswer(NOT_IN_TIME, sent=False)
        call = Call(
            endpoint + path,
            _TO_JSON(body).encode(),
            _headers(token),
            only_now=path == KEEP_ALIVE,  # one that is done late keeps what the dead left
            is_terse=True,
        )
        answer = client.ask(call, seconds=seconds)
        try:
            return parse_answer(endpoint + path, answer)
        except PermissionDenied as refusal:
            whose = "the user in LEASECTL_USER_FILE needs"
            if self._user_file is None:
                whose = f"{_NAME_USER}, of a user with"
            raise NotAllowed(
                f"{endpoint}: {refusal}; {whose} a role that may read and write all keys below "
                f"{self.keys.prefix} (a role for jobs can't change pools, use once, or take a "
                "lease by force)"
            ) from refusal
        except CommonNameRefused as refusal:
            raise NotAllowed(
                f"{endpoint}: {refusal}; where etcd demands users, its gateway takes no "
                "certificate with a common name: name one without CN in LEASECTL_CERT_FILE, and "
                f"{_NAME_USER}"
            ) from refusal


def _headers(token: str | None) -> dict[str, str]:
    return {"Authorization": token} if token else {}
