"""Send requests, and judge answers and outages; what there is of a type."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.requests import BoskosAddress, login_headers
from leasectl.backends.contract import Patience
from leasectl.backends.unanswered import Loss, Refused, failure, trying_again, words_of
from leasectl.errors import AccessRefused, BackendUnreachable, CanNeverBeMet, NotAllowed, NotFound
from leasectl.http.exchange import Client, trust_for
from leasectl.http.messages import Answer, Call
from leasectl.http.no_answer import NoAnswer, NotInTime
from leasectl.http.settings import Settings
from leasectl.model import Request
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt, sleep
from leasectl.text.naming import is_resource_name
from leasectl.text.properties import read_json
from leasectl.text.wording import printable

_MISSING_SECONDS = 5.0
_UNAVAILABLE = ("available", "try again")
# In what Boskos says of another owner: "owner mismatch request by A, currently owned by B".
_OWNER = "owner"
_WHICH_THERE_ARE = "its configuration file (--config) lists the types"
_UNKNOWN = ("not exist", "n't exist", "unknown", "no such")

# Why a request got nothing: none is free, or the type may not exist (its metric tells).
NotGranted = Literal["none free", "unclear"]
# The outcome of an update or a release.
Verdict = Literal["done", "not ours", "gone"]


class Granted(NamedTuple):
    """A resource that was granted.

    Args:
        name: Its name.
        type: Its type; empty where Boskos didn't say.
    """

    name: str
    type: str


class Metric(NamedTuple):
    """What there is of a type.

    Args:
        type: Which.
        states: How many are in each state.
        owners: How many resources each owner has; free ones are under the empty name.
    """

    type: str
    states: Mapping[str, int]
    owners: Mapping[str, int]


def check_allowed(url: str, answer: Answer) -> Answer:
    """Return the answer, if it doesn't refuse us access.

    Raises:
        AccessRefused: It does.
    """
    is_owners = _OWNER in answer.text.casefold() and "www-authenticate" not in answer.headers
    is_password = answer.status == 401 and not is_owners
    if is_password or answer.status in (403, 407):
        raise AccessRefused(
            NotAllowed(
                f"{words_of(url, answer)}; it needs a user and password: set "
                "LEASECTL_BOSKOS_USERNAME, and name the file with the password in "
                "LEASECTL_BOSKOS_PASSWORD_FILE"
            )
        )
    return answer


def check_is_boskos(url: str, answer: Answer) -> None:
    """Check that Boskos answers: it refuses a request for a metric that names no type.

    Raises:
        BackendUnreachable: Something else answers.
    """
    if answer.status != 400 or "type" not in answer.text.casefold():
        raise BackendUnreachable(
            f"not a working Boskos: {words_of(url, answer)}; check the path in its URL"
        )


def granted(url: str, answer: Answer) -> Granted | NotGranted:
    """Return what Boskos answered to a request for one resource.

    Raises:
        NotFound: The type doesn't exist.
        CanNeverBeMet: Boskos will never grant the request.
        Refused: The request failed, and may succeed the next time.
        Loss: Boskos may have granted a resource, and the answer doesn't name it.
        BackendUnreachable: The answer isn't from Boskos.
    """
    if answer.status == 200:
        return _resource_in(url, answer)
    if answer.status == 404:
        text = answer.text.casefold()
        is_unknown = any(each in text for each in _UNKNOWN)
        is_unavailable = any(each in text for each in _UNAVAILABLE)
        if is_unknown == is_unavailable:
            return "unclear"
        if is_unavailable:
            return "none free"
        raise NotFound(f"{words_of(url, answer)}; {_WHICH_THERE_ARE}")
    raise _failed(url, answer)


def verdict(url: str, answer: Answer) -> Verdict:
    """Return the outcome of an update or a release.

    Raises:
        Refused: Boskos failed, and may succeed the next time; or a proxy answered instead.
    """
    if answer.status == 200:
        if answer.text.strip():  # a page of something in between, which knows of no lease
            raise Refused(f"unexpected answer from {url} (no confirmation); is it really Boskos?")
        return "done"
    if answer.status in (401, 409):
        return "not ours"
    if answer.status == 404:
        return "gone"
    raise Refused(words_of(url, answer))


def metric(url: str, pool_type: str, answer: Answer) -> Metric:
    """Read the metric of a type.

    Args:
        url: The server.
        pool_type: The type.
        answer: The server's answer.

    Raises:
        NotFound: The type doesn't exist.
        Refused: The answer holds no metric.
    """
    if answer.status == 404:  # it says to try again later, and would say so for ever
        raise NotFound(f'no type "{printable(pool_type)}" at {url}; {_WHICH_THERE_ARE}')
    if answer.status != 200:
        raise Refused(words_of(url, answer))
    try:
        told = read_json(answer.text)
        return Metric(str(told["type"]), _counts(told["current"]), _counts(told["owner"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused(f"unexpected answer from {url} (no metric); is it really Boskos?") from None


def _counts(value: object) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError
    return {str(key): int(number) for key, number in value.items()}


def _resource_in(url: str, answer: Answer) -> Granted:
    """The resource in an answer; by name it comes as a list of one."""
    try:
        told = read_json(answer.text)
        if isinstance(told, list):
            (told,) = told
        name, its_type = told["name"], told.get("type") or ""
        if isinstance(name, str) and is_resource_name(name) and isinstance(its_type, str):
            return Granted(name, its_type)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    if not answer.text.strip():
        raise BackendUnreachable(
            f"{url} gave an empty answer, as Boskos does for an unknown path; check the path in "
            "its address"
        )
    said = printable(" ".join(answer.text.split()), longest=100)
    raise Loss(f"{url} answered without a resource: {said or 'nothing'}")


def _failed(url: str, answer: Answer) -> BackendUnreachable | CanNeverBeMet:
    words = words_of(url, answer)
    if answer.status < 400:  # Boskos has no such answer
        return BackendUnreachable(f"{words}; check its address")
    if answer.status >= 500:
        return Loss(words)  # what Boskos asks itself may have been done, and its answer lost
    return Refused(words) if answer.status in (408, 429) else CanNeverBeMet(words)


_CONNECT_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 8 << 20


class BoskosConnection:
    """Requests to one Boskos, each on a connection of its own.

    Args:
        address: Of Boskos.
        settings: How to talk to it.
        clock: Where times come from.
    """

    def __init__(self, address: BoskosAddress, settings: Settings, *, clock: Clock) -> None:
        self.address = address
        self._settings = settings
        self._clock = clock
        self._trust = trust_for(address.server, settings)
        self._interrupts: Sequence[Interrupt] = ()
        self._client = self._new_client()

    def interrupted_by(self, interrupts: Sequence[Interrupt]) -> BoskosConnection:
        """Return another connection there; the interrupts end its requests and pauses."""
        other = copy.copy(self)
        other._interrupts, other._client = interrupts, self._new_client()
        return other

    def _new_client(self) -> Client:
        return Client(
            clock=self._clock,
            trust=self._trust,
            keeps_connections=False,
            heeds_environment=self._settings.trust_env,
            connect_seconds=_CONNECT_SECONDS,
            longest_bytes=_LONGEST_ANSWER_BYTES,
        )

    @property
    def url(self) -> str:
        """What messages call it."""
        return self.address.server

    def close(self) -> None:
        """End its thread, unless that waits for an answer now."""
        self._client.close()

    def pause(self, until: float | None) -> None:
        """Sleep until a time of CLOCK_BOOTTIME, in seconds, or until an interrupt."""
        sleep(interrupts=self._interrupts, until=until, now=self._clock.elapsed)

    def ask(
        self,
        call: Call,
        *,
        seconds: float,
        tick: Callable[[float], float | None] = lambda now: None,
        late: Callable[[Answer | None], object] | None = None,
    ) -> Answer:
        """Send a request, and wait for its answer.

        Args:
            call: The request.
            seconds: How long it may take.
            tick: See `Client.ask`.
            late: See `Client.ask`.

        Raises:
            NotSent, Loss: No answer.
            AccessRefused: Not to us.
            LeaseError: The files with our user, or with trusted certificates, can't be used.
        """
        headers: Mapping[str, str] = {**call.headers, **login_headers(self._settings)}
        try:
            answer = self._client.ask(
                call._replace(headers=headers),
                seconds=seconds,
                interrupts=self._interrupts,
                tick=tick,
                late=late,
            )
        except NotInTime as reason:
            if not reason.sent:
                raise failure(self.url, reason) from None
            raise Loss(f"no answer from {self.url} in time") from None
        except NoAnswer as reason:
            raise failure(self.url, reason) from reason
        return check_allowed(self.url, answer)


# That nobody answers at an address is most likely wrong with the address.
_NEVER_THERE_SECONDS = 10.0
# One that has answered comes back, as a rule: its pod was moved, or its own server was away.
_AWAY_SECONDS = 60.0


def check_there_is(connection: BoskosConnection, request: Request, owner: str) -> None:
    """Look whether there is any resource of a type, and that very one if one is named.

    An update by who isn't its owner changes nothing, and is answered otherwise for what there is.

    Raises:
        NotFound: There is none.
        BackendUnreachable: It can't be told now, or it isn't Boskos that answers there.
    """
    metric_of(connection, request.type, seconds=_MISSING_SECONDS)
    if request.name is not None:
        call = requests.update(connection.address, request.name, owner)
        answer = connection.ask(call, seconds=_MISSING_SECONDS)
        if verdict(connection.url, answer) == "gone":
            raise NotFound(f'no resource "{printable(request.name)}" at {connection.url}')


def metric_of(connection: BoskosConnection, pool_type: str, *, seconds: float) -> Metric:
    """Ask what there is of a type.

    Args:
        connection: To Boskos.
        pool_type: The type.
        seconds: How long each request may take.

    Raises:
        NotFound: The type doesn't exist.
        BackendUnreachable: It can't be told now, or it isn't Boskos that answers there.
    """
    call = requests.metric(connection.address, pool_type)
    answer = connection.ask(call, seconds=seconds)
    if answer.status == 404:  # which whatever else is at a wrong address says, too
        call = requests.sign_of_life(connection.address)
        check_is_boskos(connection.url, connection.ask(call, seconds=seconds))
    return metric(connection.url, pool_type, answer)


class Outage:
    """What has failed in a row, from the first request on.

    Args:
        patience: How long to wait; warns people.
        clock: Where times come from.

    Attributes:
        was_there: It has answered at least once.
        failure: What failed last; None as long as it works.
    """

    def __init__(self, patience: Patience, *, clock: Clock) -> None:
        self.was_there = False
        self.failure: BackendUnreachable | None = None
        self._patience = patience
        self._clock = clock
        self._since: float | None = None

    def note(self, failure: BackendUnreachable) -> None:
        """Note a failure.

        Raises:
            BackendUnreachable: The same, when the server has been away for too long.
        """
        now = self._clock.elapsed()
        if self._since is None:
            self._since = now
            self._patience.warn(trying_again(failure))
        self.failure = failure
        longest = _AWAY_SECONDS if self.was_there else _NEVER_THERE_SECONDS
        if now >= self._since + self._patience.server_seconds(longest):
            raise failure

    def is_over(self) -> None:
        """Note that it works."""
        self.was_there = True
        self.failure = None
        self._since = None
