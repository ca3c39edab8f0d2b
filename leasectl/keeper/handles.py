"""The handles that the keeper looks after, and those whose processes have ended.

They are kept from one look to the next. A look first takes the processes that have ended since the
last one, and then the changes on record. In this order it reads everything that a process wrote
before it ended, so it never takes a handle for abandoned that was announced just now.
"""

from __future__ import annotations

from collections.abc import Collection

from leasectl.keeper.job import Key, key_of
from leasectl.leases.recovery import have_all_ended
from leasectl.model import Handle, Process, ReleaseTarget, whole
from leasectl.state.directory import State
from leasectl.state.handles import renews_itself
from leasectl.state.watched import WatchedHandles
from leasectl.system.process import own_pid_namespace
from leasectl.system.process_watch import ProcessEnds


class KeptHandles:
    """The keeper's view of the handles that it sees to; it contains their `Key`s.

    Args:
        state: The state directory that is kept.
        ends: Of processes, those of the handles among them.
    """

    def __init__(self, state: State, ends: ProcessEnds) -> None:
        self._records = WatchedHandles(state)
        self._ends = ends
        self._handles: dict[str, Handle] = {}
        self._followed: dict[Process, set[str]] = {}  # to the ids of their handles
        self._to_judge: dict[str, None] = {}
        self._abandoned: dict[str, None] = {}
        self._changed: dict[str, None] = {}

    def __contains__(self, key: object) -> bool:
        handle = self._handles.get(key.handle_id) if isinstance(key, Key) else None
        return handle is not None and key == key_of(handle)

    def look(self) -> bool:
        """Take what is new; returns whether there was anything.

        Raises:
            LeaseError: The records can't be read; the next look misses nothing.
        """
        has_news = False
        while self._take():  # again: a process may have been found dead only after its record
            has_news = True
        return has_news

    def check(self) -> None:
        """Raise the first error of records that couldn't be read at the last look."""
        for error in self._records.damaged.values():
            raise error

    def abandoned(self) -> list[ReleaseTarget]:
        """Return what to release because all its processes have ended."""
        return [whole(self._handles[each], by="guard") for each in self._abandoned]

    def take_changed(self) -> dict[str, Handle | None]:
        """Return those that changed, or one of whose processes ended, since the last call."""
        changed, self._changed = self._changed, {}
        return {each: self._handles.get(each) for each in changed}

    def to_renew(self, handle: Handle) -> bool:
        """Return whether the keeper has to renew a handle, because no other process does."""
        if not renews_itself(handle) or handle.state != "held":
            return False
        if handle.guard is not None and handle.guard.pid_namespace != own_pid_namespace():
            return False  # the keeper of its namespace renews it
        return handle.runner is None or self._ends.has_ended(handle.runner)

    def trim(self) -> None:
        """Trim the log of changes to what its readers still need."""
        self._records.trim()

    def _take(self) -> bool:
        ended = self._ends.take()
        for process in ended:
            self._to_judge.update(dict.fromkeys(self._followed.get(process, ())))
        changes = self._records.changes()
        gone = self._handles.keys() - changes.handles if changes.are_all else ()
        try:
            for handle_id, handle in (*changes.handles.items(), *((each, None) for each in gone)):
                self._put(handle_id, handle)
        except BaseException:
            self._records.read_all_again()
            raise
        judged, self._to_judge = self._to_judge, {}
        self._changed.update(judged)
        for handle_id in judged:
            handle = self._handles.get(handle_id)
            if handle is not None and have_all_ended(handle, self._ends.has_ended):
                self._abandoned[handle_id] = None
            else:
                self._abandoned.pop(handle_id, None)
        return bool(ended or judged)

    def _put(self, handle_id: str, handle: Handle | None) -> None:
        before = self._handles.get(handle_id)
        if handle == before:
            return
        self._to_judge[handle_id] = None
        follows, followed = _processes(handle), _processes(before)
        if handle is None:
            del self._handles[handle_id]
        else:
            self._handles[handle_id] = handle
        self._follow(handle_id, follows - followed)
        self._leave(handle_id, followed - follows)

    def _follow(self, handle_id: str, processes: Collection[Process]) -> None:
        for process in processes:
            self._followed.setdefault(process, set()).add(handle_id)
        self._ends.follow(processes)

    def _leave(self, handle_id: str, processes: Collection[Process]) -> None:
        for process in processes:
            handle_ids = self._followed[process]
            handle_ids.remove(handle_id)
            if not handle_ids:
                del self._followed[process]
        self._ends.leave(processes)


def _processes(handle: Handle | None) -> set[Process]:
    """Return the processes whose end may bring work."""
    some = () if handle is None else (handle.guard, handle.waiter, handle.runner)
    return {process for process in some if process is not None}
