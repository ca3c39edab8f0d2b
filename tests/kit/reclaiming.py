"""A made-up operator, who asks holders to give leases back: it does what it is told, no more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from leasectl.engines.notes import Note, NoteChange, Notes
from leasectl.leases.marks import Mark, encode_mark, new_mark, parse_mark
from leasectl.model import Handle

State = Literal["marked", "ready", "keep"]


class Operator:
    """Marks, looks and frees.

    Args:
        notes: Of the backend.
        seconds: For how long its marks are good.
    """

    def __init__(self, notes: Notes, *, seconds: float = 100.0) -> None:
        self.notes = notes
        self.seconds = seconds

    def mark(self, handle: Handle, names: Iterable[str] | None = None) -> list[Mark]:
        """Ask for some of what a handle holds, or all."""
        wanted = handle.names if names is None else tuple(names)
        leases = [lease for lease in handle.leases if lease.name in wanted]
        marks = [new_mark("ops@desk", seconds=self.seconds, now=5.0) for _ in leases]
        changes = [
            NoteChange(str(handle.type), lease.name, lease.fence, None, encode_mark(mark))
            for lease, mark in zip(leases, marks)
        ]
        assert all(self.notes.change(changes))
        return marks

    def states(self, pool_type: str = "T") -> dict[str, State]:
        """What its marks say now, by name."""
        found = {note.name: parse_mark(note.text) for note in self.notes.of_pool(pool_type)}
        return {name: mark.state for name, mark in found.items() if mark is not None}

    def in_state(self, state: State, pool_type: str = "T") -> list[Note]:
        states = self.states(pool_type)
        return [n for n in self.notes.of_pool(pool_type) if states.get(n.name) == state]

    def free(self, pool_type: str = "T") -> tuple[str, ...]:
        """Free what is ready."""
        return self.notes.free(self.in_state("ready", pool_type), by="command")

    def take_off(self, pool_type: str = "T") -> None:
        """Take off all marks."""
        self.notes.change(
            [
                NoteChange(n.type, n.name, n.fence, n.text, None)
                for n in self.notes.of_pool(pool_type)
            ]
        )
