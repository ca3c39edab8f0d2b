"""A job of the keeper: what is due, who does it, and what follows a failure.

Each job works on many items: handles, memberships or pools. It finds what is due (`go`). It does
that at once on the embedded pool, and by a thread for each server. What failed is tried again after
a pause, which doubles each time.
"""

from __future__ import annotations

import abc
import contextlib
import os
import resource
from collections.abc import Callable, Container, Hashable, Iterable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from leasectl.errors import StateUnwritable
from leasectl.keeper.log import Log, described
from leasectl.keeper.server import Server
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget
from leasectl.state.directory import State
from leasectl.system.backoff import Backoff
from leasectl.system.request_threads import RequestThreads
from leasectl.text.durations import format_seconds

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
# If a file size limit lets the records grow by this much, it isn't why they can't be written.
_ROOM_BYTES = 1 << 20

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class Key(NamedTuple):
    """One acquisition of one handle."""

    handle_id: str
    acquisition: int


def key_of(handle: Handle) -> Key:
    """Return the key of a handle's current acquisition."""
    return Key(handle.id, handle.acquisition)


def key_meant(target: ReleaseTarget) -> Key:
    """Return the key of the acquisition that a target is about."""
    return Key(target.handle_id, target.acquisition)


def lift_limit(limit: int) -> int:
    """Lift a limit of this process as far as the system allows; return the limit that is left."""
    most = resource.getrlimit(limit)[1]
    resource.setrlimit(limit, (most, most))
    if limit != resource.RLIMIT_NOFILE:  # limited by the kernel even for root
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return resource.getrlimit(limit)[0]


def is_of_size_limit(error: Exception, state: State) -> bool:
    """Return whether records can't be written for a file size limit that can't be lifted.

    It may have been set since this process began, as by prlimit(1).
    """
    if not isinstance(error, StateUnwritable):
        return False
    limit, largest = lift_limit(resource.RLIMIT_FSIZE), 0
    for ending in ("", "-wal"):
        with contextlib.suppress(OSError):
            largest = max(largest, os.stat(state.path(f"state.db{ending}")).st_size)
    return limit != resource.RLIM_INFINITY and limit < largest + _ROOM_BYTES


class _Retry(NamedTuple):
    at: float
    failures: int


class Retries:
    """When failed work is tried again: after a pause, which doubles with each failure.

    Args:
        service: On the state directory that is kept.
        log: Told of each failure, and of when the next try is.
    """

    def __init__(self, service: Service, log: Log) -> None:
        self._state = service.state
        self._clock = service.clock
        self._log = log
        self._retries: dict[Hashable, _Retry] = {}

    def at(self, key: Hashable) -> float | None:
        """Return when the next try is, CLOCK_BOOTTIME; None if the last didn't fail."""
        retry = self._retries.get(key)
        return None if retry is None else retry.at

    def put_off(self, key: Hashable) -> float | None:
        """Return when the next try is, CLOCK_BOOTTIME; None if there is nothing to wait for."""
        at = self.at(key)
        return None if at is None or self._clock.elapsed() >= at else at

    def failed(
        self,
        key: Hashable,
        what: str,
        error: Exception,
        longest_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> float:
        """Note a failure, and return when the next try is.

        Args:
            key: Of what failed.
            what: What couldn't be done, for the log.
            error: Why.
            longest_seconds: The longest pause before the next try.

        Raises:
            ImportError: The code is gone, for every job.
            StateUnwritable: This process can never write; another keeper can.
        """
        if isinstance(error, ImportError) or is_of_size_limit(error, self._state):
            raise error
        before = self._retries.get(key)
        failures = 1 if before is None else before.failures + 1
        pause = Backoff(FIRST_PAUSE_SECONDS, longest_seconds).pause(failures)
        at = self._clock.elapsed() + pause
        self._retries[key] = _Retry(at, failures)
        self._log.write(f"can't {what}: {described(error)}; next try in {format_seconds(pause)}")
        return at

    def bring_forward(self, keys: Iterable[Hashable]) -> None:
        """Try some of them again at once: the reason of their failure may have passed."""
        for key in keys:
            if key in self._retries:
                self._retries[key] = self._retries[key]._replace(at=0.0)

    def succeeded(self, key: Hashable) -> None:
        """Forget earlier failures."""
        self._retries.pop(key, None)

    def keep_only(self, known: Container[object]) -> None:
        """Forget the failures of everything else."""
        self._retries = {key: each for key, each in self._retries.items() if key in known}


class Job(abc.ABC, Generic[Item, Result]):
    """Does one kind of work, on the embedded pool at once and on servers by threads.

    A subclass says what is due, how it is done, and what follows.

    Args:
        service: On the state directory that is kept.
        log: Where events are written.
    """

    def __init__(self, service: Service, log: Log) -> None:
        self._service = service
        self._clock = service.clock
        self._log = log
        self._retries = Retries(service, log)
        self._threads: RequestThreads[Server, Item, Result] = RequestThreads(
            self._begin, clock=service.clock
        )

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first thread."""
        return self._threads.fd

    def take_outcomes(self) -> None:
        """Note the outcomes of what threads were asked to do."""
        for outcome in self._threads.outcomes():
            self._settle(outcome.job, outcome.result, outcome.sent_at)

    def keep_only(self, known: Container[object]) -> None:
        """Forget the failures of all but some keys."""
        self._retries.keep_only(known)

    def attempt(self, item: Item) -> float | None:
        """Do the work on an item, or have a thread do it, unless it failed a moment ago.

        Returns:
            When it is due next, CLOCK_BOOTTIME; None for never, or if its outcome will say.
        """
        put_off = self._retries.put_off(self._key(item))
        if put_off is not None:
            return put_off
        try:
            server = self._server(item)
            if server is not None:
                self._threads.send(server, item)
                return None
        except Exception as error:  # its record is damaged, or no descriptor is left
            return self._failed(item, error)
        return self.do_here(item)

    def do_here(self, item: Item) -> float | None:
        """Do the work on an item without a thread, however long it takes; return as `attempt`."""
        return self._settle(item, partial(self._do, self._service, item), self._clock.elapsed())

    def _begin(self, server: Server) -> Callable[[Item], Result]:
        return partial(self._do, self._service.for_another_thread())

    def _settle(self, item: Item, result: Callable[[], Result], sent_at: float) -> float | None:
        try:
            done = result()
        except Exception as error:
            return self._failed(item, error)
        self._retries.succeeded(self._key(item))
        return self._succeeded(item, done, sent_at)

    def _key(self, item: Item) -> Hashable:
        """Return what an item's failures are counted by."""
        return item

    @abc.abstractmethod
    def _server(self, item: Item) -> Server | None:
        """Return which server has to be asked; None for none."""

    @abc.abstractmethod
    def _do(self, service: Service, item: Item) -> Result:
        """Do it; called in a thread, with a service of its own, if there is a server."""

    @abc.abstractmethod
    def _succeeded(self, item: Item, result: Result, sent_at: float) -> float | None:
        """Record that it was done; return when it is due next."""

    @abc.abstractmethod
    def _failed(self, item: Item, error: Exception) -> float | None:
        """Record that it failed; return when the next try is."""
