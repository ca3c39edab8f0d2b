"""The operations of etcd's v3 JSON gateway, each within a deadline.

Each request may be repeated, because a lost answer says nothing. Reads change nothing. An etcd
lease is granted under an id that we choose, so "already exists" means that it is there. A
transaction has guards that it breaks itself, so only one of its repetitions succeeds. A client that
must know which one did reads it back (`Outcome.answers` of a repetition that failed).

A request goes to one member, over TLS and with a token if etcd requires them. Each member forgets a
token five minutes after its last use, or when the member restarts. So a client whose token is
rejected authenticates again and repeats the request.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.answers import (
    CommonNameRefused,
    EtcdLeaseGone,
    FailedPrecondition,
    Failures,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    is_alive,
    parse_answer,
)
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.requests import Json, Outcome, parse_outcome, unreadable_answer
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    NotAllowed,
)
from leasectl.http.exchange import Client, IdleClients, trust_for
from leasectl.http.messages import Call
from leasectl.http.no_answer import NOT_IN_TIME, NoAnswer
from leasectl.http.settings import NamedFile, Settings
from leasectl.system.backoff import Backoff, Pauses
from leasectl.system.clock import Clock
from leasectl.text.properties import MALFORMED, read_integer
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.engines.etcd.tokens import TokenStore

_LONGEST_USER_BYTES = 64 * 1024
_KEEP_ALIVE = "/v3/lease/keepalive"
_CONNECT_SECONDS = 1.0
_NAME_USER = "name a file that holds user:password in LEASECTL_USER_FILE"
# What is sent takes etcd time for each byte. It is made here, and so has no circles.
_TO_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
# Pools of many thousands of resources take a few MiB.
_LONGEST_ANSWER_BYTES = 64 << 20


ATTEMPT_SECONDS = 2.0
NO_SETTINGS = Settings()
# Between two rounds of all members.
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=0.5)
_LONGEST_LOGIN_SECONDS = 60.0
# However little time is left, an answer that takes no longer is waited for.
_LEAST_SECONDS = 3.0


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
    content = file.read(_LONGEST_USER_BYTES)
    try:
        name, _, password = content.decode().rstrip("\r\n").partition(":")
    except UnicodeDecodeError:
        name = password = ""
    if not name or not password or not (name + password).isprintable():
        raise file.refused("doesn't hold user:password as its only line")
    return User(name, password)


class MemberStatus(NamedTuple):
    """The status of one member.

    Args:
        endpoint: The member's base address.
        version: The version of etcd; empty if the user may not know it.
        has_leader: The member knows a leader, or the user may not know.
        problem: Why the member gave no status; empty if it gave one.
        advice: What to do about the problem; empty for nothing in particular.
    """

    endpoint: str
    version: str = ""
    has_leader: bool = False
    problem: str = ""
    advice: str = ""


def new_etcd_lease_id() -> int:
    """Return a random id for an etcd lease."""
    # Signed in etcd, and 0 is none.
    return (int.from_bytes(os.urandom(8), "big") >> 1) or 1


class _Limits(threading.local):
    """The limit that a thread has set by `Gateway.limited`, on the elapsed clock."""

    until: float | None = None


class Gateway:
    """The keys below one prefix of a cluster. Threads may share it.

    Args:
        address: The members, and the prefix below which the user needs to be allowed everything.
        settings: The certificates, and the file with the user. No file is read before it is needed.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
        attempt_seconds: How long one try may take, at one member.
        rest_seconds: After a timeout, all requests fail at once for so long: for a process in which
            many would wait for etcd, one after the other.
        pause: Called with seconds between two rounds of all members, or between two looks for
            another process's token.

    Attributes:
        endpoints: The members' base addresses, ``http://host:port``.
        keys: The keys below the prefix.
    """

    def __init__(
        self,
        address: EtcdAddress,
        settings: Settings = NO_SETTINGS,
        *,
        clock: Clock,
        deadline_seconds: float = 10.0,
        attempt_seconds: float = ATTEMPT_SECONDS,
        rest_seconds: float = 0.0,
        pause: Callable[[float], object] = time.sleep,
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
        self._deadline_seconds = deadline_seconds
        self._attempt_seconds = attempt_seconds
        self._rest_seconds = rest_seconds
        self._rest = (0.0, "")  # until when on the elapsed clock, and why
        self._limits = _Limits()
        self._clients = IdleClients()
        self._lock = threading.Lock()
        self._current = 0  # under the lock

    @property
    def current(self) -> int:
        """The number of the member that answered last."""
        return self._current

    def close(self) -> None:
        """End all connections, except those of clients that callers have made."""
        self._clients.close()

    @contextlib.contextmanager
    def limited(self, until: float | None) -> Iterator[None]:
        """Wait not much longer for the requests of this thread inside; None for the usual limits.

        Each member gets an equal share of the time that is left.
        """
        before = self._limits.until
        self._limits.until = until
        try:
            yield
        finally:
            self._limits.until = before

    # What etcd does

    def commit(
        self, guards: Sequence[Json], then: Sequence[Json], otherwise: Sequence[Json] = ()
    ) -> Outcome:
        """Carry out all operations or none, if all guards hold.

        An earlier try whose answer was lost may have made a guard fail (`Outcome.repeated`). A
        caller that must know reads the result in ``otherwise``.

        Args:
            guards: The guards, like `unchanged`. A transaction that writes breaks one of them.
            then: The operations, like `put`, `delete` and `read`.
            otherwise: The operations if a guard doesn't hold.

        Raises:
            EtcdLeaseGone: A key was to be attached to an etcd lease that has ended.
            BackendUnreachable: No answer before the deadline, or none that could come.
            AccessRefused: etcd doesn't know the user, or the user may not do this, or a file that
                is needed to ask can't be used.
        """
        parts = {"compare": list(guards), "success": list(then), "failure": list(otherwise)}
        body = {name: part for name, part in parts.items() if part}
        return parse_outcome(*self._ask("/v3/kv/txn", body), then, otherwise)

    def read(self, *reads: Json) -> Outcome:
        """Read several things as they are at one revision."""
        return self.commit((), reads)

    def grant(self, etcd_lease_id: int, ttl_seconds: int) -> None:
        """Make an etcd lease under an id as `new_etcd_lease_id` makes them."""
        with contextlib.suppress(FailedPrecondition):  # by a try whose answer was lost
            self._ask("/v3/lease/grant", {"ID": str(etcd_lease_id), "TTL": str(ttl_seconds)})

    def revoke(self, etcd_lease_id: int) -> None:
        """End an etcd lease and delete what is attached to it, if it is there."""
        with contextlib.suppress(EtcdLeaseGone):
            self._ask("/v3/lease/revoke", {"ID": str(etcd_lease_id)})

    def revoke_unused(self, etcd_lease_id: int) -> None:
        """End an etcd lease that nothing is attached to; if that fails it ends by itself."""
        with contextlib.suppress(BackendUnreachable):
            self.revoke(etcd_lease_id)

    def keep_alive(self, etcd_lease_id: int) -> bool:
        """Give an etcd lease its full time again; returns whether it was still there."""
        answer, _ = self._ask(_KEEP_ALIVE, {"ID": str(etcd_lease_id)})
        try:
            return is_alive(answer)
        except MALFORMED as error:
            raise unreadable_answer(error) from error

    def seconds_left(self, etcd_lease_id: int) -> int:
        """Return after how many seconds an etcd lease ends at the latest; it may have ended."""
        answer, _ = self._ask("/v3/lease/timetolive", {"ID": str(etcd_lease_id)})
        try:
            return read_integer(answer.get("TTL", 0)) + 1  # etcd rounds down, and says -1 for none
        except MALFORMED as error:
            raise unreadable_answer(error) from error

    def status(self, member: int, seconds: float) -> MemberStatus:
        """Return the status of one member, which may take so many seconds.

        Raises:
            LeaseError: It can't be asked, for a reason that is the same at every member.
        """
        endpoint = self.endpoints[member]
        try:
            with self.client() as client:
                said = self.ask_member(client, member, "/v3/maintenance/status", {}, seconds)
        except NoAnswer as reason:
            return MemberStatus(endpoint, problem=str(reason), advice=reason.advice)
        except NotAllowed as refusal:
            if not isinstance(refusal.__cause__, (PermissionDenied, Unauthenticated)):
                raise
            # It is there. Since etcd 3.6 only who may do everything is told more, where users are
            # demanded; what this one may, the next request says.
            return MemberStatus(endpoint, has_leader=True)
        # "0", or nothing at all, while there is none.
        has_leader = str(said.get("leader", "0")) != "0"
        return MemberStatus(endpoint, printable(str(said.get("version", "unknown"))), has_leader)

    def leave(self, member: int) -> None:
        """Send requests to the next member first, unless this one was left already."""
        with self._lock:
            if self._current == member:
                self._current = (member + 1) % len(self.endpoints)

    def _ask(self, path: str, body: Json) -> tuple[Json, bool]:
        """Return the answer, and whether an earlier try may have been carried out."""
        try:
            return self._ask_anybody(path, body)
        except (CorruptState, InvalidRequest, NotAllowed) as reason:
            raise AccessRefused(reason) from reason

    def _time_for(self, start: float) -> tuple[float, float]:
        """Return when a request that begins now has to end, and the seconds for one member."""
        deadline, attempt_seconds = start + self._deadline_seconds, self._attempt_seconds
        until = self._limits.until
        if until is not None:
            deadline = min(deadline, max(until, start + _LEAST_SECONDS))
            attempt_seconds = min(attempt_seconds, (deadline - start) / len(self.endpoints))
        return deadline, attempt_seconds

    def _login_seconds(self, left: float) -> float:
        """Return how long a login may take: longer than a request, for a waiter that has time.

        Of many that come at once, all logins take as long as etcd takes for all passwords; what is
        given up and repeated makes that longer.
        """
        until = self._limits.until
        if until is None:
            return left
        return max(left, min(until - self._clock.elapsed(), _LONGEST_LOGIN_SECONDS))

    def _ask_anybody(self, path: str, body: Json) -> tuple[Json, bool]:
        start = self._clock.elapsed()
        rests_until, why = self._rest
        if start < rests_until:
            raise BackendUnreachable(why)
        deadline, attempt_seconds = self._time_for(start)
        failures = Failures()
        repeated = False
        pauses = Pauses(_BACKOFF)
        with self._clients.borrow(None, self.client) as client:
            while True:
                lasting = True
                for turns in range(len(self.endpoints), 0, -1):
                    member, left = self._current, deadline - self._clock.elapsed()
                    seconds = min(attempt_seconds, left)
                    if seconds <= 0:
                        why = failures.text(deadline - start)
                        self._rest = (self._clock.elapsed() + self._rest_seconds, why)
                        raise BackendUnreachable(why)
                    try:
                        answer = self.ask_member(
                            client,
                            member,
                            path,
                            body,
                            seconds,
                            login_seconds=self._login_seconds(left) / turns,
                        )
                        return answer, repeated
                    except NoAnswer as reason:
                        repeated = repeated or reason.sent
                        lasting = lasting and reason.lasting
                        failures.note(self.endpoints[member], reason)
                        self.leave(member)
                if lasting and not client.is_outdated:
                    error = BackendUnreachable(failures.text())
                    error.lasting = True
                    raise error
                self._pause(min(pauses.next(), max(0.0, deadline - self._clock.elapsed())))

    # One member

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
        self._token = self._token or self._tokens.load()
        if self._token:
            # With a token, even what does nothing is refused unless that is valid.
            self.ask_member(client, member, "/v3/kv/txn", {}, seconds)
        else:
            self._authenticate(client, member, self._tokens, until, refused=self._token)
        return _headers(self._token)

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
                f"can't get a token: {why}", advice=why.advice, sent=False, lasting=why.lasting
            ) from reason
        token = str(said.get("token", ""))
        if not token.isascii() or not token.isprintable():
            raise NoAnswer("the token in its answer can't be read", sent=False)
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
            only_now=path == _KEEP_ALIVE,  # one that is done late keeps what the dead left
            is_terse=True,
        )
        answer = client.ask(call, seconds=seconds)
        try:
            return parse_answer(endpoint + path, answer)
        except PermissionDenied as refusal:
            name_it = f"{_NAME_USER}; " if self._user_file is None else ""
            raise NotAllowed(
                f"{endpoint}: {refusal}; {name_it}the user needs a role that may read and write "
                f"all keys below {self.keys.prefix} (with a role that is only for jobs, pool "
                "changes, once and release --force are refused)"
            ) from refusal
        except CommonNameRefused as refusal:
            raise NotAllowed(
                f"{endpoint}: {refusal}; with authentication on, etcd's gateway refuses client "
                "certificates that have a common name: name a file with a certificate without CN "
                f"in LEASECTL_CERT_FILE, and {_NAME_USER}"
            ) from refusal


def _headers(token: str | None) -> dict[str, str]:
    return {"Authorization": token} if token else {}
