"""Renew and release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.connection import BoskosConnection, Metric, Verdict, verdict
from leasectl.backends.boskos.connection import metric as metric_in
from leasectl.backends.boskos.requests import BoskosAddress, type_of
from leasectl.backends.release_tries import SendRelease
from leasectl.backends.unanswered import Loss, Refused, words_of
from leasectl.errors import BackendUnreachable, NotFound
from leasectl.http.messages import Answer, Call
from leasectl.system.clock import Clock, rfc3339
from leasectl.text.wording import counted, printable

# The reaper looks once a minute.
_REAPER_PAUSE_SECONDS = 60.0


class LostGrants:
    """What an owner has, and the grants among that whose names were lost.

    Args:
        pool_type: Of the request.
        owner: Of the request.
        clock: Where times come from.
    """

    def __init__(self, pool_type: str, owner: str, *, clock: Clock) -> None:
        self._type = pool_type
        self._owner = owner
        self._clock = clock
        self._found: list[float] = []  # of each that was found, from when on the reaper may take it

    @property
    def number(self) -> int:
        """How many have been found."""
        return len(self._found)

    def count(
        self, connection: BoskosConnection, named: int, *, asked_at: float, seconds: float
    ) -> int:
        """Look how many more the owner has than can be named, and weren't known before.

        One that the reaper is about to take may be counted once more when another is lost: then
        too much is said of what is lost, and never too little.

        Args:
            connection: To Boskos.
            named: How many can be named.
            asked_at: When what may be lost was asked for, CLOCK_BOOTTIME in seconds.
            seconds: How long that may take.

        Raises:
            BackendUnreachable: It can't be found out now.
        """
        metric = look(connection, self._type, seconds=seconds)
        now = self._clock.elapsed()
        known = sum(reaped_from > now for reaped_from in self._found)
        more = max(0, metric.owners.get(self._owner, 0) - named - known)
        reaped_from = asked_at + connection.address.reaper_seconds
        self._found += [reaped_from] * more
        return more


def look(connection: BoskosConnection, pool_type: str, *, seconds: float) -> Metric:
    """Ask for the metric of a type that there is.

    Raises:
        BackendUnreachable: It isn't told now: Boskos has no word for that it can't look, but that
            for a type that there isn't.
    """
    call = requests.metric(connection.address, pool_type)
    answer = connection.ask(call, seconds=seconds)
    try:
        return metric_in(connection.url, pool_type, answer)
    except NotFound as error:
        raise Refused(str(error)) from None


class LostNote(NamedTuple):
    """The note for people about grants whose names were lost.

    Args:
        address: Of Boskos.
        pool_type: Their type.
        owner: Their owner.
        wall: The time, in seconds since the epoch.
    """

    address: BoskosAddress
    pool_type: str
    owner: str
    wall: float

    def certain(self, number: int) -> str:
        """The warning that an owner has this many more."""
        verb = "is" if number == 1 else "are"
        return self._text(f"{counted(number, 'resource')} of {self.pool_type} {verb} leased")

    def possible(self) -> str:
        """The warning that an owner may have one more."""
        return self._text(f"a resource of {self.pool_type} may be leased")

    def _text(self, what: str) -> str:
        until = self.wall + self.address.reaper_seconds + _REAPER_PAUSE_SECONDS
        return (
            f"an answer was lost: {what} to {self.owner} at {self.address.server}, and leasectl "
            "can't tell which; nothing to do: Boskos' reaper frees what isn't renewed, by "
            f"{rfc3339(until)} at the latest"
        )


# How long one request may take: a server that is slow answers in less.
ATTEMPT_SECONDS = 20.0

# For so long it has to say that a resource isn't the owner's, and so often in that time.
_HEAR_SECONDS = 0.9
_TIMES_NOT_OURS = 4


class _Unseen(Refused):
    """Boskos says that there is no such resource, and perhaps it couldn't look."""


class _PerhapsOurs(Refused):
    """Boskos says that it isn't the owner's, and perhaps it hasn't heard of its grant yet.

    Args:
        words: What it says.
        at: When, CLOCK_BOOTTIME in seconds.
    """

    def __init__(self, words: str, at: float) -> None:
        super().__init__(words)
        self.at = at


class Holding:
    """Updates and releases at one Boskos.

    Args:
        connection: To it.
        clock: Where times come from.
    """

    def __init__(self, connection: BoskosConnection, *, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    def renew(self, owner: str, names: Sequence[str], *, seconds: float) -> tuple[str, ...]:
        """Renew names, one a request.

        Args:
            owner: Whose they are.
            names: Which.
            seconds: How long that may take in all; each half as long at most.

        Returns:
            Those that are the owner's still, as far as that is known. If one has been lost, that
            counts for more than that another couldn't be renewed.

        Raises:
            BackendUnreachable: Of one it isn't known, and none has been lost.
        """
        until = self._clock.elapsed() + seconds
        lost: set[str] = set()
        failed: BackendUnreachable | None = None
        for name in names:
            left = min(until - self._clock.elapsed(), seconds / 2, ATTEMPT_SECONDS)
            try:
                if left <= 0:
                    raise Refused(f"no time was left to renew {name} at {self._connection.url}")
                had = len(names) - len(lost)
                if not self.renew_one(owner, name, had=had, seconds=left):
                    lost.add(name)
            except BackendUnreachable as error:
                failed = failed or error
        if failed is not None and not lost:
            raise failed
        return tuple(name for name in names if name not in lost)

    def renew_one(self, owner: str, name: str, *, had: int, seconds: float) -> bool:
        """Renew one name.

        Args:
            owner: Whose it is.
            name: Which.
            had: How many its owner has, if it has that one.
            seconds: How long that may take.

        Returns:
            Whether it is the owner's still.

        Raises:
            BackendUnreachable: It isn't known.
        """
        call = requests.update(self._connection.address, name, owner)
        until = self._clock.elapsed() + seconds
        for _ in range(_TIMES_NOT_OURS):
            left = max(0.0, until - self._clock.elapsed())
            came, answer = self._change(call, seconds=left)
            again = self._clock.elapsed() + _HEAR_SECONDS / (_TIMES_NOT_OURS - 1)
            if came != "not ours" or again >= until:
                break
            self._connection.pause(again)
        if came == "gone":
            told = look(self._connection, type_of(owner), seconds=seconds)
            if told.owners.get(owner, 0) >= had:
                raise Refused(words_of(self._connection.url, answer))
        return came == "done"

    def sender(self, owner: str, name: str) -> SendRelease:
        """What sends the release of one name.

        That there is no such resource Boskos says as well when it can't look.
        """

        def send(seconds: float, failures: Sequence[Exception]) -> str | None:
            call = requests.release(self._connection.address, name, owner)
            came, answer = self._change(call, seconds=seconds)
            words = words_of(self._connection.url, answer)
            if came == "gone" and not _number_of(_Unseen, failures):
                raise _Unseen(words)
            if came == "not ours":
                now = self._clock.elapsed()
                first = next((each.at for each in failures if isinstance(each, _PerhapsOurs)), now)
                if now - first < _HEAR_SECONDS:  # tries may follow each other at once
                    raise _PerhapsOurs(words, now)
            if came == "done" or _number_of(Loss, failures):
                return None  # or most likely by that of which no answer came
            return f"{printable(name)} was no longer leased to us: {words}"

        return send

    def _change(self, call: Call, *, seconds: float) -> tuple[Verdict, Answer]:
        answer = self._connection.ask(call, seconds=seconds)
        return verdict(self._connection.url, answer), answer


def _number_of(kind: type[Exception], failures: Sequence[Exception]) -> int:
    return sum(isinstance(each, kind) for each in failures)
