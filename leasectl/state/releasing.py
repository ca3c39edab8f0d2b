"""Releases that are under way on a server, and of which the outcome isn't certain yet.

Every method that changes something belongs inside `State.transaction`.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.model import Process, parse_process
from leasectl.state.directory import State
from leasectl.state.rows import insert
from leasectl.system.process import liveness

_NO_BOOT = "given-up"  # nothing of that runs, also for versions before


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
        """Who is releasing, or died releasing, a name."""
        rows = self._state.query(
            "SELECT process FROM giving_back WHERE backend = ? AND name = ?", self._backend, name
        )
        return [parse_process(process) for (process,) in rows]


def begin_anew(state: State, process: Process) -> None:
    """Inside a transaction: a process has become another program, and releases nothing by now."""
    state.db.execute("DELETE FROM giving_back WHERE process = ?", (process.encode(),))
