"""Remove pools that were made on demand."""

from __future__ import annotations

from leasectl.backends.kinds import kind_of
from leasectl.keeper.job import Job
from leasectl.keeper.log import Log
from leasectl.keeper.server import Server
from leasectl.leases.on_demand import remove_unused
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.state.watched import MadePool, MadePools
from leasectl.system.process_watch import ProcessEnds

# A pool that is being created on a server can't be seen yet. If its creator has died, the pool's
# parts end or can be found within this time.
_MAKING_SECONDS = 6.0


class UnusedPools(Job[MadePool, bool]):
    """Removes a pool once the process that was responsible for it has ended, unless others use it.

    Args:
        service: On the state directory that is kept.
        ends: Of the processes, which the caller follows.
        log: Where events are written.
    """

    def __init__(self, service: Service, ends: ProcessEnds, log: Log) -> None:
        super().__init__(service, log)
        self._made = MadePools(service.state)
        self._ends = ends
        self._look_again_at: dict[MadePool, float] = {}

    def processes(self) -> list[Process]:
        """Return the processes whose end may leave a pool."""
        return [pool.process for pool in self.pools()]

    def pools(self) -> list[MadePool]:
        """Return the pools that live processes see to, and those to remove."""
        return self._made.all()

    def go(self) -> list[float | None]:
        """Remove what is due, or have threads do it; return when each is due next."""
        made = self.pools()
        self.keep_only(made)
        self._look_again_at = {k: at for k, at in self._look_again_at.items() if k in made}
        # The leases of dead holders are released first; a lease that is left has a living holder.
        return [
            self._see_to(each)
            for each in made
            if self._ends.has_ended(each.process) and not self._made.is_asked_for(each)
        ]

    def _see_to(self, pool: MadePool) -> float | None:
        due = self._look_again_at.get(pool, 0.0)
        return due if self._clock.elapsed() < due else self.attempt(pool)

    def _server(self, item: MadePool) -> Server | None:
        is_remote = kind_of(item.backend).remote
        return Server(item.backend, item.settings) if is_remote else None

    def _do(self, service: Service, item: MadePool) -> bool:
        backend = service.backend_at(item.backend, item.settings)
        was_there = remove_unused(backend, item.type)
        if self._server(item) is not None:
            backend.values.tidy()
        return was_there

    def _succeeded(self, item: MadePool, result: bool, sent_at: float) -> float | None:
        has_looked = item in self._look_again_at
        if not result and not has_looked and self._server(item) is not None:
            self._look_again_at[item] = again = self._clock.elapsed() + _MAKING_SECONDS
            return again
        self._log.write(f"pool {item.type} is gone, or is used again")
        with self._service.state.transaction():
            self._made.forget(item)
        return None

    def _failed(self, item: MadePool, error: Exception) -> float:
        return self._retries.failed(item, f"remove pool {item.type}", error)
