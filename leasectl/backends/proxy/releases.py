"""Giving back to a lease proxy: by name, or whatever a key was granted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Callable, TypeVar

from leasectl.backends.proxy.connection import Connection, Loss, NotSent, words_of
from leasectl.backends.proxy.protocol import (
    RELEASE,
    Refused,
    is_undone,
    was_released,
    with_key,
)
from leasectl.errors import AccessRefused, BackendUnreachable
from leasectl.system.backoff import Backoff, retry
from leasectl.system.clock import Clock
from leasectl.text.durations import format_seconds
from leasectl.text.printable import printable

# What a release may take in all, unless somebody has said how long.
MOST_SECONDS = 30.0
# For how long it is tried again then, where there is no server, or one that fails.
AWAY_SECONDS = 10.0
# The real proxy takes 14 s to find that Boskos has taken a lease back, and serves nobody meanwhile.
SLOW_ANSWER_SECONDS = 15.0
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=1.0)

Result = TypeVar("Result")


class Releases:
    """Releases at one lease proxy, each tried until it works or its time is over.

    Args:
        url: Of the proxy.
        connection: How to talk to it.
        seconds: How long a release may take in all. None: `MOST_SECONDS`, and longer only where
            one lease after the other turns out to have been taken back.
        warn: Called with a line for people, about what turned out not to be leased any more.
        clock: Where times come from.
    """

    def __init__(
        self,
        url: str,
        connection: Connection,
        *,
        seconds: float | None,
        warn: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._url = url
        self._connection = connection
        self._seconds = MOST_SECONDS if seconds is None else seconds
        self._away_seconds = AWAY_SECONDS if seconds is None else seconds
        self._may_take_longer = seconds is None
        self._warn = warn
        self._clock = clock

    def release(self, key: str, names: Sequence[str]) -> Iterator[str]:
        """Give names back, one a request; yields each as soon as it is certain.

        They share one limit of time: one that hangs or fails doesn't keep the others from being
        released, and has another turn in what time they leave.

        Args:
            key: Of the acquisition that got them; empty when that isn't known.
            names: What the server called them. None of them: whatever the key has been granted.

        Raises:
            BackendUnreachable: In the end, when one couldn't be given back in time.
        """
        start = self._clock.elapsed()
        try:
            if not names and key:
                self.undo(key)
            yield from self._give_all_back(key, names, start + self._seconds)
        except AccessRefused:
            raise
        except BackendUnreachable as error:
            spent = format_seconds(self._clock.elapsed() - start)
            raise BackendUnreachable(f"not released within {spent}: {error}") from error

    def _give_all_back(self, key: str, names: Sequence[str], until: float) -> Iterator[str]:
        left = list(names)
        failure: BackendUnreachable | None = None
        last_try = self._clock.elapsed() + self._away_seconds
        for _ in range(2):
            for turns, name in zip(range(len(left), 0, -1), tuple(left)):
                now = self._clock.elapsed()
                share = (until - now) / turns
                if failure is None:
                    share = max(share, min(SLOW_ANSWER_SECONDS, self._seconds / 2, until - now))
                try:
                    remark = self.give_back(name, key, now + share, last_try)
                except BackendUnreachable as error:
                    failure = failure or error
                    continue
                if remark is not None:
                    self._warn(remark)
                    if self._may_take_longer:
                        spent = self._clock.elapsed() - now
                        until, last_try = until + spent, last_try + spent
                left.remove(name)
                yield name
        if left and failure is not None:
            raise failure

    def give_back(
        self, name: str, key: str, until: float | None = None, last_try: float | None = None
    ) -> str | None:
        """Release one name; that it isn't leased (any more) is as good.

        Args:
            name: What the server called it.
            key: Of the acquisition that got it: a server that heeds keys doesn't release what it
                has granted to somebody else since. Empty when that isn't known.
            until: When to give up, CLOCK_BOOTTIME in seconds.
            last_try: From when on it isn't tried again.

        Returns:
            What people should know of it: that it wasn't ours any more. None where it was.

        Raises:
            BackendUnreachable: It is not certain that it was released.
        """
        end = until if until is not None else self._clock.elapsed() + self._seconds
        failures: list[Exception] = []

        def once() -> str | None:
            left = end - self._clock.elapsed()
            if left <= 0:
                raise Refused(f"{self._url} was given no time to release {printable(name)}")
            answer = self._connection.tell(
                RELEASE, {"names": [name]}, headers=with_key(key), seconds=left
            )
            if was_released(self._url, answer):
                return None
            return _remark(name, words_of(self._url, answer), failures)

        return self._until_it_works(once, end, last_try, lambda _, error: failures.append(error))

    def undo(self, key: str, *, seconds: float | None = None) -> bool:
        """Give back whatever was granted to requests with a key, and end those that wait.

        It is a release of no names, which means nothing to a server that doesn't heed keys.

        Args:
            key: Of a request or an acquisition.
            seconds: Try once, for so long; None: as often and as long as a release.

        Returns:
            Whether the server heeds keys: then nothing is leased under this one any more.

        Raises:
            BackendUnreachable: It is not certain that it was undone.
        """
        end = self._clock.elapsed() + (self._seconds if seconds is None else seconds)

        def once() -> bool:
            left = max(0.0, end - self._clock.elapsed())
            answer = self._connection.tell(
                RELEASE, {"names": []}, headers=with_key(key), seconds=left
            )
            return is_undone(self._url, answer, key)

        return once() if seconds is not None else self._until_it_works(once, end)

    def _until_it_works(
        self,
        once: Callable[[], Result],
        end: float,
        last_try: float | None = None,
        note: Callable[[int, Exception], object] = lambda failures, error: None,
    ) -> Result:
        if last_try is None:
            last_try = self._clock.elapsed() + self._away_seconds
        over_at = min(end, last_try)
        return retry(
            once,
            on=(NotSent, Loss, Refused),
            backoff=_BACKOFF,
            is_over=lambda pause: self._clock.elapsed() + pause >= over_at,
            sleep=time.sleep,
            note=note,
        )


def _remark(name: str, words: str, failures: Sequence[Exception]) -> str | None:
    """What to say of a name that the server says isn't leased.

    After a lost answer it is most likely what we have just released. After a refusal it is what the
    server has given up to release, although Boskos still has it as leased.
    """
    refusals = [str(each) for each in failures if isinstance(each, Refused)]
    if refusals:
        return f"{printable(name)} may stay leased until the job ends: {refusals[0]}; then {words}"
    return None if failures else f"{printable(name)} wasn't leased to us any more: {words}"
