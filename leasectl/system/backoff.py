"""Pauses between retries.

Pauses double, so that the retries don't keep a server down. A part of each is random, so that
clients that failed together don't come back together. A loop that has more to decide (which member
is next, what else is due) uses the schedule alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

# Far beyond any cap, and no float overflow.
_MOST_DOUBLINGS = 64

Result = TypeVar("Result")


class Backoff(NamedTuple):
    """The pauses after the first failure, the second in a row, and so on.

    Args:
        first_seconds: After the first; twice as long after each further one.
        longest_seconds: No pause is longer.
        chance: The random part of each pause, as a share: 0 for none, 1 for anything from nothing
            to all of it ("full jitter").
    """

    first_seconds: float
    longest_seconds: float
    chance: float = 0.0

    def pause(self, failures: int, random: Callable[[], float] | None = None) -> float:
        """Return the pause after so many failures in a row, in seconds.

        Args:
            failures: From 1 on.
            random: Returns a random number from 0 to 1.
        """
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        longest = min(self.first_seconds * 2.0**doublings, self.longest_seconds)
        if not self.chance:
            return longest
        return longest * (1 - self.chance * (random or draw)())


class Restarts:
    """When to restart a process that has ended: at once if it had lasted, else later each time.

    Args:
        backoff: The pauses after the second short life in a row, the third, and so on.
        lasting_seconds: A process that has lived for so long has lasted.
    """

    def __init__(self, backoff: Backoff, *, lasting_seconds: float = 60.0) -> None:
        self._backoff = backoff
        self._lasting_seconds = lasting_seconds
        self._started_at: float | None = None
        self._failures = 0

    def started(self, now: float) -> None:
        """Note that the process was started."""
        self._started_at = now

    def pause(self, now: float) -> float:
        """Note that the process has ended; return how long to wait before the restart."""
        started_at, self._started_at = self._started_at, None
        if started_at is not None and now >= started_at + self._lasting_seconds:
            self._failures = 0
        self._failures += 1
        if started_at is not None and self._failures == 1:
            return 0.0
        return self._backoff.pause(max(1, self._failures - 1))


def draw() -> float:
    """Return a random number from 0 to 1."""
    from random import random  # slow to load, and most commands never need it

    return random()


class Pauses:
    """The pauses between endless tries.

    Args:
        backoff: How long they are.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures = 0

    def next(self) -> float:
        """Return the pause after one more failure, in seconds."""
        self._failures += 1
        return self._backoff.pause(self._failures)

    def begin_anew(self) -> None:
        """Begin with the first pause again, after a success."""
        self._failures = 0


def retry(
    once: Callable[[], Result],
    *,
    on: tuple[type[Exception], ...],
    backoff: Backoff,
    is_over: Callable[[float], bool],
    sleep: Callable[[float], None],
    note: Callable[[int, Exception], object] = lambda failures, error: None,
    random: Callable[[], float] | None = None,
) -> Result:
    """Try until it works.

    Args:
        once: One try.
        on: The errors after which to try again; all others end it.
        backoff: How long to pause in between.
        is_over: Called with the length of the next pause; returns whether there is no time for it.
        sleep: Called with seconds.
        note: Called before each pause with the number of failures so far, and the last error.
        random: See `Backoff.pause`.

    Raises:
        Exception: The error of the last try, when there is no time for another.
    """
    try:
        return once()
    except on as error:
        failed: list[Exception] = [error]
    # Loaded late: it takes as long as a request.
    from tenacity import RetryCallState, Retrying, retry_if_exception_type

    def again() -> Result:
        if failed:
            raise failed.pop()
        return once()

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            note(state.attempt_number, error)

    return Retrying(
        retry=retry_if_exception_type(on),
        wait=lambda state: backoff.pause(state.attempt_number, random),
        stop=lambda state: is_over(state.upcoming_sleep),
        sleep=sleep,
        before_sleep=tell,
        reraise=True,
    )(again)
