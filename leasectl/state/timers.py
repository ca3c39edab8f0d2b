"""Delayed releases, and releases under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leasectl.model import Process, ReleaseTarget, Timer, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import insert
from leasectl.system.process import liveness

# In the column "name", for all that a handle holds.
_ALL = ""
# Beside the columns of a handle: when all that it holds is released; NULL for never.
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
        """Have the keeper release something; what was armed for the same before is replaced.

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
        """Have the keeper release all of a handle, unless somebody else has said when.

        Returns:
            When it is due, as `arm` has it.
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
        """All of them, the next one first; names that were armed together are apart."""
        return self._select("")

    def of_names(self) -> dict[tuple[str, str], float]:
        """When single names are to be released, by the ids of their handles and themselves."""
        rows = self._state.query("SELECT handle, name, due FROM timer WHERE name <> ?", _ALL)
        return {(row["handle"], row["name"]): float(row["due"]) for row in rows}

    def due(self, now: float) -> list[ReleaseTarget]:
        """What is to be released by now, CLOCK_BOOTTIME in seconds, the earliest first."""
        return [timer.target for timer in self._select("WHERE due <= ?", now)]

    def next_after(self, now: float) -> float | None:
        """When the first is due of those that aren't by now."""
        ((due,),) = self._state.query("SELECT min(due) FROM timer WHERE due > ?", now)
        return None if due is None else float(due)

    def _select(self, where: str, *values: float) -> list[Timer]:
        rows = self._state.query(
            f"SELECT handle, name, acquisition, due FROM timer {where} ORDER BY due", *values
        )
        return [
            Timer(
                ReleaseTarget(
                    row["handle"],
                    row["acquisition"],
                    None if row["name"] == _ALL else (row["name"],),
                    by="delay",
                ),
                row["due"],
            )
            for row in rows
        ]

    def disarm(self, handle_id: str, names: Iterable[str] | None = None) -> None:
        """Take timers away: those of some names, or all that a handle has."""
        if names is None:
            self._state.db.execute("DELETE FROM timer WHERE handle = ?", (handle_id,))
        else:
            self._state.db.executemany(
                "DELETE FROM timer WHERE handle = ? AND name = ?",
                [(handle_id, name) for name in names],
            )

    def of_nobody(self) -> list[str]:
        """Ids that a release is armed for and that no handle has."""
        rows = self._state.query(
            "SELECT DISTINCT handle FROM timer WHERE NOT EXISTS "
            "(SELECT 1 FROM handle WHERE id = timer.handle)"
        )
        return [row["handle"] for row in rows]


_NO_BOOT = "given-up"  # nothing of that runs


class GivingBack:
    """Who is releasing which names.

    Args:
        state: The opened state directory.
        release_key: What releases of one name have in common that could meet the same lease, as
            `release_key_of` has it.
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
        """Record that this process's release of a name is certain, and with it the dead's.

        Of another pid namespace nobody can tell who is dead; its processes were waited for.
        """
        for other in self.processes(name):
            if other == process or liveness(other) != "alive":
                self.stopped([name], other)

    def stopped(self, names: Sequence[str], process: Process) -> None:
        """Record that this process no longer tries to release names, with whatever outcome."""
        self._state.db.executemany(
            "DELETE FROM giving_back WHERE backend = ? AND name = ? AND process = ?",
            [(self._backend, name, process.encode()) for name in names],
        )

    def given_up(self, names: Sequence[str], process: Process) -> None:
        """Record that this process no longer tries to release names, and doesn't know what came of
        that: for others it is as if it had died meanwhile, whatever it does next."""
        self.stopped(names, process)
        self.start(names, process._replace(boot_id=_NO_BOOT))

    def forget_dead(self, names: Sequence[str]) -> None:
        """Forget who has died, or given up, releasing names: what came of that is known now."""
        for name in names:
            for other in self.processes(name):
                if liveness(other) == "dead":
                    self.stopped([name], other)

    def processes(self, name: str) -> list[Process]:
        """Processes that release a name, or died while they did."""
        rows = self._state.query(
            "SELECT process FROM giving_back WHERE backend = ? AND name = ?", self._backend, name
        )
        return [parse_process(process) for (process,) in rows]


def begin_anew(state: State, process: Process) -> None:
    """Inside a transaction: a process has become another program, and releases nothing by now."""
    state.db.execute("DELETE FROM giving_back WHERE process = ?", (process.encode(),))
