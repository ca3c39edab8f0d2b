"""Release what is due, and what dead holders had."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container

from leasectl.backends.kinds import kind_of_handle
from leasectl.keeper.log import Log, described
from leasectl.keeper.retries import Key, Retries, key_meant
from leasectl.keeper.server import Server
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import ReleaseTarget
from leasectl.system.clock import Clock
from leasectl.system.request_threads import RequestThreads

# A server that is away for long costs little; a resource that nobody can have costs more.
_LONGEST_PAUSE_SECONDS = 10.0

# Opens, in the thread that calls it, a function that releases.
OpenRelease = Callable[[], Callable[[ReleaseTarget], tuple[str, ...]]]


class Releases:
    """Releases on the embedded pool at once, those on servers by threads.

    Args:
        service: On the state directory that is kept.
        open_release: What a thread releases with; it needs records of its own.
        clock: Where times come from.
        log: Where events are written.
    """

    def __init__(
        self, service: Service, open_release: OpenRelease, *, clock: Clock, log: Log
    ) -> None:
        self._service = service
        self._clock = clock
        self._log = log
        self._retries = Retries(clock=clock, log=log)
        self._servers: dict[Key, Server] = {}  # which each release was sent to last
        self._threads: RequestThreads[Server, ReleaseTarget, tuple[str, ...]] = RequestThreads(
            lambda server: open_release(), clock=clock
        )

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first thread."""
        return self._threads.fd

    def release(self, target: ReleaseTarget) -> float | None:
        """Release, or have a thread do it, unless it failed a moment ago.

        Returns:
            When it is to be tried again; None if that isn't needed, or `take_outcomes` will say.
        """
        retry_at = self._retries.at(key_meant(target))
        if retry_at is not None and self._clock.elapsed() < retry_at:
            return retry_at
        try:
            handle = self._service.handles.load(target.handle_id)
            if handle is not None and kind_of_handle(handle).remote:
                server = Server(handle.backend, handle.settings)
                self._servers[key_meant(target)] = server
                self._threads.send(server, target)
                return None
        except Exception as error:  # its record is damaged, or no descriptor is left
            return self._failed(target, error)
        return self.release_here(target)

    def release_here(self, target: ReleaseTarget) -> float | None:
        """Release without a thread, however long it takes; returns as `release`."""
        return self._note(target, functools.partial(release, self._service, target))

    def _failed(self, target: ReleaseTarget, error: Exception) -> float:
        text = f"can't release {target.handle_id}: {described(error)}"
        key = key_meant(target)
        return self._retries.failed(key, text, longest_seconds=_LONGEST_PAUSE_SECONDS)

    def take_outcomes(self) -> None:
        """Note what came of what threads were asked to do."""
        for outcome in self._threads.outcomes():
            if self._note(outcome.job, outcome.result) is None:
                self._answers_again(key_meant(outcome.job))

    def _answers_again(self, key: Key) -> None:
        """Release at once what failed at the same server before."""
        server = self._servers.pop(key, None)
        self._retries.bring_forward(k for k, each in self._servers.items() if each == server)

    def keep_only(self, known: Container[Key]) -> None:
        """Forget what isn't there any more."""
        self._retries.keep_only(known)
        self._servers = {key: each for key, each in self._servers.items() if key in known}

    def _note(self, target: ReleaseTarget, released: Callable[[], tuple[str, ...]]) -> float | None:
        key = key_meant(target)
        try:
            names = released()
        except ImportError:
            raise  # the code is gone, for every job
        except Exception as error:
            return self._failed(target, error)
        self._retries.succeeded(key)
        self._log.write(f"released {target.handle_id}: {' '.join(names) or 'held nothing'}")
        return None
