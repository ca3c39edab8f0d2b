"""Remove pools that were made on demand."""

from __future__ import annotations

from collections.abc import Callable

from leasectl.backends.kinds import kind_of
from leasectl.keeper.log import Log, described
from leasectl.keeper.retries import Key, Retries
from leasectl.keeper.server import Server
from leasectl.keeper.stays import OpenService
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.state.watched import MadePool, MadePools
from leasectl.system.clock import Clock
from leasectl.system.process_watch import ProcessEnds
from leasectl.system.request_threads import RequestThreads

# A pool that is being created on a server can't be seen yet. If its creator has died, the pool's
# parts end or can be found within this time.
_MAKING_SECONDS = 6.0


class UnusedPools:
    """Removes a pool once the process that was responsible for it has ended, unless others use it.

    Args:
        service: On the state directory that is kept.
        open_service: What a thread asks servers with.
        ends: Of the processes, which the caller follows.
        clock: Where times come from.
        log: Where events are written.
    """

    def __init__(
        self,
        service: Service,
        open_service: OpenService,
        ends: ProcessEnds,
        *,
        clock: Clock,
        log: Log,
    ) -> None:
        self._made = MadePools(service.state)
        self._service = service
        self._open_service = open_service
        self._ends = ends
        self._clock = clock
        self._log = log
        self._retries = Retries(clock=clock, log=log)
        self._look_again_at: dict[MadePool, float] = {}
        self._threads: RequestThreads[Server, MadePool, bool] = RequestThreads(
            self._begin, clock=clock
        )

    @property
    def fd(self) -> int | None:
        """A descriptor that can be read when there are outcomes; None before the first thread."""
        return self._threads.fd

    def processes(self) -> list[Process]:
        """Whose end may leave one."""
        return [pool.process for pool in self.pools()]

    def pools(self) -> list[MadePool]:
        """Those that live processes see to, and those to remove."""
        return self._made.all()

    def go(self) -> list[float | None]:
        """Remove what is due, or have threads do it; returns when each is due next."""
        made = self._made.all()
        self._retries.keep_only({_key(each) for each in made})
        self._look_again_at = {k: at for k, at in self._look_again_at.items() if k in made}
        # The leases of dead holders are released first; a lease that is left has a living holder.
        return [
            self._see_to(each)
            for each in made
            if self._ends.has_ended(each.process) and not self._made.is_asked_for(each)
        ]

    def take_outcomes(self) -> None:
        """Note what came of what threads were asked to do."""
        for outcome in self._threads.outcomes():
            self._note(outcome.job, outcome.result)

    def _see_to(self, pool: MadePool) -> float | None:
        due = self._retries.at(_key(pool)) or self._look_again_at.get(pool, 0.0)
        if self._clock.elapsed() < due:
            return due
        if not kind_of(pool.backend).remote:
            backend = self._service.backend_at(pool.backend, pool.settings)
            return self._note(pool, lambda: remove_unused(backend, pool.type))
        self._threads.send(Server(pool.backend, pool.settings), pool)
        return None

    def _begin(self, server: Server) -> Callable[[MadePool], bool]:
        backend = self._open_service().backend_at(server.url, server.settings)

        def remove(pool: MadePool) -> bool:
            was_there = remove_unused(backend, pool.type)
            backend.values.tidy()
            return was_there

        return remove

    def _note(self, pool: MadePool, removed: Callable[[], bool]) -> float | None:
        key = _key(pool)
        try:
            was_there = removed()
        except ImportError:
            raise  # the code is gone, for every job
        except Exception as error:
            return self._retries.failed(key, f"can't remove pool {pool.type}: {described(error)}")
        self._retries.succeeded(key)
        has_looked = pool in self._look_again_at
        if not was_there and not has_looked and kind_of(pool.backend).remote:
            self._look_again_at[pool] = again = self._clock.elapsed() + _MAKING_SECONDS
            return again
        self._log.write(f"pool {pool.type} is gone, or others use it")
        with self._service.state.transaction():
            self._made.forget(pool)
        return None


def _key(pool: MadePool) -> Key:
    return Key(f"{pool.backend} {pool.type} {pool.process.encode()}", 0)
