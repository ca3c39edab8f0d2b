"""Retry what failed, more and more seldom."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from leasectl.keeper.log import Log
from leasectl.model import Handle, ReleaseTarget
from leasectl.system.backoff import Backoff
from leasectl.system.clock import Clock
from leasectl.text.durations import format_seconds

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Key(NamedTuple):
    """One acquisition of one handle: what the keeper remembers things of."""

    handle_id: str
    acquisition: int


def key_of(handle: Handle) -> Key:
    """The current acquisition of a handle."""
    return Key(handle.id, handle.acquisition)


def key_meant(target: ReleaseTarget) -> Key:
    """The acquisition that a target is about."""
    return Key(target.handle_id, target.acquisition)


class _Retry(NamedTuple):
    at: float
    failures: int


class Retries:
    """What has failed and is to be tried again, after pauses of double length each.

    Args:
        clock: Where times come from.
        log: Told of each failure, and of when the next try is.
    """

    def __init__(self, *, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._retries: dict[Key, _Retry] = {}

    def at(self, key: Key) -> float | None:
        """When the next try is, CLOCK_BOOTTIME in seconds; None if the last didn't fail."""
        retry = self._retries.get(key)
        return None if retry is None else retry.at

    def failed(
        self, key: Key, text: str, *, longest_seconds: float = LONGEST_PAUSE_SECONDS
    ) -> float:
        """Note a failure.

        Args:
            key: Of what.
            text: What to log of it.
            longest_seconds: The longest pause before the next try.

        Returns:
            When that is.
        """
        before = self._retries.get(key)
        failures = 1 if before is None else before.failures + 1
        pause = Backoff(FIRST_PAUSE_SECONDS, longest_seconds).pause(failures)
        self._retries[key] = _Retry(self._clock.elapsed() + pause, failures)
        self._log.write(f"{text}; next try in {format_seconds(pause)}")
        return self._retries[key].at

    def bring_forward(self, keys: Iterable[Key]) -> None:
        """Try some of them again at once: what made them fail has passed, perhaps."""
        now = self._clock.elapsed()
        for key in keys:
            retry = self._retries.get(key)
            if retry is not None:
                self._retries[key] = retry._replace(at=min(retry.at, now))

    def succeeded(self, key: Key) -> None:
        """Forget earlier failures."""
        self._retries.pop(key, None)

    def keep_only(self, known: Container[Key]) -> None:
        """Forget everything that isn't there any more."""
        for key in [key for key in self._retries if key not in known]:
            del self._retries[key]
