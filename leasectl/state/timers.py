"""Delayed releases, and releases under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasectl.model import Process, ReleaseTarget, Timer, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import insert
from leasectl.system.process import liveness

# In the column "name": all that a handle holds.
_ALL = ""
# For a query of handles: when all that a handle holds will be released; NULL for never.
RELEASE_AT = f"(SELECT due FROM timer WHERE timer.handle = handle.id AND timer.name = '{_ALL}')"


class Timers:
    """The timers of one state directory.

    There is one for all that a handle holds, and one for each of its names, at most.

    Args:
        state: The opened state directory.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def arm(self, target: ReleaseTarget, due_at: float) -> None:
        """Tell the keeper to release a target later; this replaces an earlier timer of the same.

        Args:
            target: Of a handle that isn't released.
            due_at: CLOCK_BOOTTIME, seconds.
        """
        for name in (_ALL,) if target.names is None else target.names:
            row = {
                "handle": target.handle_id,
                "name": name,
                "acquisition": target.acquisition,
                "due": due_at,
            }
            insert(self._state.db, "timer", row, replace=True)
        self._state.db.execute("UPDATE handle SET watched = 1 WHERE id = ?", (target.handle_id,))

    def arm_first(self, whole: ReleaseTarget, due_at: float) -> float:
        """Tell the keeper to release all of a handle, unless there is a timer for that already.

        Returns:
            When it is due, CLOCK_BOOTTIME, seconds.
        """
        found = self._state.query(
            "SELECT due FROM timer WHERE handle = ? AND name = ? AND acquisition = ?",
            *(whole.handle_id, _ALL, whole.acquisition),
        )
        if found:
            return float(found[0][0])
        self.arm(whole, due_at)
        return due_at

    def armed(self) -> list[Timer]:
        """Return all timers, the next one first; names that were armed together are apart."""
        return self._select("")

    def of_names(self) -> dict[tuple[str, str], float]:
        """Return when single names will be released, by handle id and name."""
        rows = self._state.read("SELECT handle, name, due FROM timer WHERE name <> ?", _ALL)
        return {(handle_id, name): due for handle_id, name, due in rows}

    def due(self, now: float) -> list[ReleaseTarget]:
        """Return what is to be released by now, CLOCK_BOOTTIME in seconds, the earliest first."""
        return [timer.target for timer in self._select("WHERE due <= ?", now)]

    def next_after(self, now: float) -> float | None:
        """Return when the first timer is due that isn't due by now."""
        ((due,),) = self._state.query("SELECT min(due) FROM timer WHERE due > ?", now)
        return None if due is None else float(due)

    def _select(self, where: str, *values: float) -> list[Timer]:
        rows = self._state.read(
            f"SELECT handle, name, acquisition, due FROM timer {where} ORDER BY due", *values
        )
        return [
            Timer(ReleaseTarget(handle_id, acquisition, (name,) if name else None, by="delay"), due)
            for handle_id, name, acquisition, due in rows
        ]

    def disarm(self, handle_id: str, names: Iterable[str] | None = None) -> None:
        """Remove timers: those of some names, or all that a handle has."""
        if names is None:
            self._state.db.execute("DELETE FROM timer WHERE handle = ?", (handle_id,))
        else:
            self._state.db.executemany(
                "DELETE FROM timer WHERE handle = ? AND name = ?",
                [(handle_id, name) for name in names],
            )

    def of_nobody(self) -> list[str]:
        """Return the ids in timers that no handle has."""
        rows = self._state.query(
            "SELECT DISTINCT handle FROM timer WHERE NOT EXISTS "
            "(SELECT 1 FROM handle WHERE id = timer.handle)"
        )
        return [handle_id for (handle_id,) in rows]


_NO_BOOT = "given-up"  # a boot id that no living process has


class GivingBack:
    """The releases that are under way, with their processes.

    Args:
        state: The opened state directory.
        release_key: The same for all releases that could hit the same lease, see `release_key_of`.
    """

    def __init__(self, state: State, release_key: str) -> None:
        self._state = state
        self._backend = release_key

    def start(self, names: Sequence[str], process: Process) -> None:
        """Record that releases are about to be sent."""
        for name in names:
            row = {"backend": self._backend, "name": name, "process": process.encode()}
            insert(self._state.db, "giving_back", row, replace=True)

    def settled(self, name: str, process: Process) -> None:
        """Record that this process's release of a name is certain, and forget those of the dead.

        Whether a process of another pid namespace is dead can't be seen; the release has waited for
        those.
        """
        for other in self.processes(name):
            if other == process or liveness(other) != "alive":
                self.stopped([name], other)

    def stopped(self, names: Sequence[str], process: Process) -> None:
        """Record that this process no longer tries to release names, whatever the outcome."""
        self._state.db.executemany(
            "DELETE FROM giving_back WHERE backend = ? AND name = ? AND process = ?",
            [(self._backend, name, process.encode()) for name in names],
        )

    def given_up(self, names: Sequence[str], process: Process) -> None:
        """Record that this process no longer tries to release names and doesn't know the outcome.

        For others it is as if it had died meanwhile, whatever it does next.
        """
        self.stopped(names, process)
        self.start(names, process._replace(boot_id=_NO_BOOT))

    def forget_dead(self, names: Sequence[str]) -> None:
        """Forget the processes that died, or gave up, releasing names: the outcome is known now."""
        for name in names:
            for other in self.processes(name):
                if liveness(other) == "dead":
                    self.stopped([name], other)

    def processes(self, name: str) -> list[Process]:
        """Return the processes that release a name, or died while they did."""
        rows = self._state.query(
            "SELECT process FROM giving_back WHERE backend = ? AND name = ?", self._backend, name
        )
        return [parse_process(process) for (process,) in rows]


def begin_anew(state: State, process: Process) -> None:
    """Forget the releases of a process that has become another program; inside a transaction."""
    state.db.execute("DELETE FROM giving_back WHERE process = ?", (process.encode(),))
