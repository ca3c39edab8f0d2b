"""What an owner has by name: kept by updates, and given back.

To what isn't that owner's nothing happens, so neither can hit what somebody else was granted since.

Boskos judges by what it has heard from Kubernetes, which comes a moment after what it has written
there itself: what it has granted just now it calls nobody's for that long. So once isn't enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.answers import Verdict, verdict
from leasectl.backends.boskos.connection import BoskosConnection
from leasectl.backends.boskos.losses import look
from leasectl.backends.boskos.owner import type_of
from leasectl.backends.one_by_one import Steps
from leasectl.backends.release_tries import SendRelease
from leasectl.backends.unanswered import Loss, Refused, words_of
from leasectl.errors import BackendUnreachable
from leasectl.http.messages import Answer, Call
from leasectl.system.clock import Clock
from leasectl.system.poll import Sleep, sleep_through
from leasectl.text.printable import printable
from leasectl.typed.hints import TypeVar

# How long one request may take: a server that is slow answers in less.
ATTEMPT_SECONDS = 20.0

_Result = TypeVar("_Result")


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
                    raise Refused(f"{self._connection.url} was given no time to renew {name}")
                had = len(names) - len(lost)
                if not self._wait(self.renewing(owner, name, had=had, seconds=left)):
                    lost.add(name)
            except BackendUnreachable as error:
                failed = failed or error
        if failed is not None and not lost:
            raise failed
        return tuple(name for name in names if name not in lost)

    def renewing(self, owner: str, name: str, *, had: int, seconds: float) -> Steps[bool]:
        """Renew one name; yields each sleep that it needs.

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
            came, answer = yield from self._change(call, seconds=left)
            again = self._clock.elapsed() + _HEAR_SECONDS / (_TIMES_NOT_OURS - 1)
            if came != "not ours" or again >= until:
                break
            yield Sleep(frozenset(), again)
        if came == "gone":
            told = yield from look(self._connection, type_of(owner), seconds=seconds)
            if told.owners.get(owner, 0) >= had:
                raise Refused(words_of(self._connection.url, answer))
        return came == "done"

    def sender(self, owner: str, name: str) -> SendRelease:
        """What sends the release of one name.

        That there is no such resource Boskos says as well when it can't look.
        """

        def send(seconds: float, failures: Sequence[Exception]) -> str | None:
            call = requests.release(self._connection.address, name, owner)
            came, answer = self._wait(self._change(call, seconds=seconds))
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
            return f"{printable(name)} wasn't leased to us any more: {words}"

        return send

    def _change(self, call: Call, *, seconds: float) -> Steps[tuple[Verdict, Answer]]:
        answer = yield from self._connection.asking(call, seconds=seconds)
        return verdict(self._connection.url, answer), answer

    def _wait(self, steps: Steps[_Result]) -> _Result:
        return sleep_through(steps, interrupts=(), now=self._clock.elapsed)


def _number_of(kind: type[Exception], failures: Sequence[Exception]) -> int:
    return sum(isinstance(each, kind) for each in failures)
