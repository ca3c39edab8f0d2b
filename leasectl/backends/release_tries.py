"""Release names on a server one by one, until each is certain.

All share one limit of time: one that hangs or fails doesn't keep the others from being given back,
and has another turn in what time they leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from leasectl.backends.kinds import Context
from leasectl.backends.unanswered import Late, Loss, NotSent, Refused
from leasectl.errors import AccessRefused, BackendUnreachable
from leasectl.system.backoff import Backoff, retry
from leasectl.text.durations import format_seconds
from leasectl.text.wording import printable

# What a release may take in all, unless somebody has said how long.
MOST_SECONDS = 30.0
# For how long it is tried again then, where there is no server, or one that fails.
AWAY_SECONDS = 10.0
# How much longer it may take at a server that is up and busy. The real proxy was seen to let
# requests wait for 83 s while it renewed three leases that Boskos had taken back.
BUSY_SECONDS = 120.0
# The real proxy takes 14 s to find that Boskos has taken a lease back, and serves nobody meanwhile.
SLOW_ANSWER_SECONDS = 15.0
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=1.0, chance=1.0)

Result = TypeVar("Result")


class Unaccounted(str):
    """A remark: the server knows a lease no more, and what is behind it may keep it leased."""


# Sends the release of one name, and is given the seconds that are left, and the failures so far;
# returns what people should know of it, if that.
SendRelease = Callable[[float, Sequence[Exception]], "str | None"]


class ReleaseTries:
    """How long, and how often, releases are tried at one server.

    Without a limit in the context, a release may take `MOST_SECONDS` in all, and longer only where
    one lease after the other turns out to have been taken back.

    Args:
        context: The backend's; it warns of what turned out not to be leased any more.
        url: Of the server, for messages.
        is_up: Asks the server something that it answers also while it is busy; None for nothing.

    Attributes:
        seconds: How long a release may take in all.
    """

    def __init__(
        self, context: Context, url: str, *, is_up: Callable[[], bool] | None = None
    ) -> None:
        seconds = context.release_seconds
        self.seconds = MOST_SECONDS if seconds is None else seconds
        self._url = url
        self._away_seconds = AWAY_SECONDS if seconds is None else seconds
        self._may_take_longer = seconds is None
        self._warn = context.warn
        self._clock = context.clock
        self._is_up = is_up

    def give_all_back(
        self, names: Sequence[str], send: Callable[[str], SendRelease]
    ) -> Iterator[str]:
        """Give names back; yields each as soon as it is certain.

        Args:
            names: What the server called them.
            send: Makes what sends the release of a name.

        Raises:
            BackendUnreachable: In the end, when one couldn't be given back in time.
        """
        start = self._clock.elapsed()
        with_time = self._give_all_back(names, send, start + self.seconds)
        try:
            yield from with_time
        except AccessRefused:
            raise
        except BackendUnreachable as error:
            raise self.not_released(start, error) from error

    def not_released(self, start: float, error: Exception) -> BackendUnreachable:
        """The error for what couldn't be given back since a time."""
        spent = format_seconds(self._clock.elapsed() - start)
        return BackendUnreachable(f"not released within {spent}: {error}")

    def _give_all_back(
        self, names: Sequence[str], send: Callable[[str], SendRelease], until: float
    ) -> Iterator[str]:
        left = list(names)
        failures: dict[str, list[Exception]] = {name: [] for name in names}
        failure: BackendUnreachable | None = None
        last_try = self._clock.elapsed() + self._away_seconds
        for _ in range(2):
            for turns, name in zip(range(len(left), 0, -1), tuple(left)):
                now = self._clock.elapsed()
                share = (until - now) / turns
                if failure is None:
                    share = max(share, min(SLOW_ANSWER_SECONDS, self.seconds / 2, until - now))
                try:
                    remark = self.give_back(name, send(name), now + share, last_try, failures[name])
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
            if not self._is_busy(failure):
                raise failure
            self._warn(
                f"{self._url} is up and busy: waiting for its answer for up to "
                f"{format_seconds(BUSY_SECONDS)} more"
            )
            until = self._clock.elapsed() + BUSY_SECONDS
            yield from self._wait_for_busy(left, send, until, failures)

    def _is_busy(self, failure: BackendUnreachable) -> bool:
        may_wait = self._may_take_longer and isinstance(failure, Late)
        return may_wait and self._is_up is not None and self._is_up()

    def _wait_for_busy(
        self,
        names: Sequence[str],
        send: Callable[[str], SendRelease],
        until: float,
        failures: dict[str, list[Exception]],
    ) -> Iterator[str]:
        failure: BackendUnreachable | None = None
        for name in names:
            try:
                remark = self.give_back(name, send(name), until, until, failures[name])
            except BackendUnreachable as error:
                failure = failure or error
                continue
            if remark is not None:
                self._warn(remark)
            yield name
        if failure is not None:
            raise failure

    def give_back(
        self,
        name: str,
        send: SendRelease,
        until: float | None = None,
        last_try: float | None = None,
        failures: list[Exception] | None = None,
    ) -> str | None:
        """Release one name.

        Args:
            name: What the server called it.
            send: Sends it.
            until: When to give up, CLOCK_BOOTTIME in seconds.
            last_try: From when on it isn't tried again.
            failures: Of earlier tries; those of this one are added.

        Returns:
            What people should know of it: that it wasn't ours any more, or is `Unaccounted`. None
            where it was.

        Raises:
            BackendUnreachable: It is not certain that it was released.
        """
        end = until if until is not None else self._clock.elapsed() + self.seconds
        failed = [] if failures is None else failures

        def once() -> str | None:
            left = end - self._clock.elapsed()
            if left <= 0:
                raise Refused(f"no time was left to release {printable(name)} at {self._url}")
            try:
                return send(left, failed)
            except (NotSent, Loss, Refused) as error:
                failed.append(error)
                raise

        return self.until_it_works(once, end, last_try)

    def until_it_works(
        self,
        once: Callable[[], Result],
        end: float,
        last_try: float | None = None,
    ) -> Result:
        """Try until it works, or there is no time left.

        Args:
            once: One try.
            end: When there is none left, CLOCK_BOOTTIME in seconds.
            last_try: From when on it isn't tried again.

        Raises:
            BackendUnreachable: What the last try raised.
        """
        if last_try is None:
            last_try = self._clock.elapsed() + self._away_seconds
        over_at = min(end, last_try)
        return retry(
            once,
            on=(NotSent, Loss, Refused),
            backoff=_BACKOFF,
            is_over=lambda pause: self._clock.elapsed() + pause >= over_at,
            sleep=time.sleep,
        )
