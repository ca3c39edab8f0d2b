"""Answer reclaims on behalf of holders."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.local.notes import noted
from leasectl.keeper.job import Job, Key, key_meant, key_of
from leasectl.keeper.log import Log
from leasectl.keeper.server import Server, server_of
from leasectl.leases.service import Service
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.state.uses import SeenMark, Uses
from leasectl.system.clock import earliest

if TYPE_CHECKING:
    from leasectl.engines.notes import Note

_REST_SECONDS = 1.0
# How long a holder has to send what it decided; after that it may have been killed.
_SENDING_SECONDS = 2.0


class Answers(Job[ReleaseTarget, "tuple[str, ...]"]):
    """Answers for the holders of some handles.

    Renewals pass on the notes that they read on servers. The records tell of answers that were
    decided and not sent, and of reclaims that have ended.
    """

    def __init__(self, service: Service, log: Log) -> None:
        super().__init__(service, log)
        self._uses = Uses(service.state)
        self._noted: dict[Key, Sequence[Note]] = {}
        self._tried: dict[Key, Sequence[Note]] = {}  # the notes that are being answered
        self._looked: dict[Key, float] = {}
        # By mark that is ready: when to check whether its answer was sent; None after the check.
        self._checked: dict[Key, dict[str, float | None]] = {}

    def heed(self, handle: Handle, notes: Sequence[Note]) -> None:
        """Take the notes that a renewal has read at a handle's leases."""
        self._noted[key_of(handle)] = notes

    def go(self, kept: Container[Key]) -> float | None:
        """Answer what is to be answered of some handles, or have threads do it.

        Args:
            kept: Those that the keeper sees to.

        Returns:
            When something is due next; None when only a note can bring work.
        """
        here = noted(self._service.state)
        seen: dict[Key, dict[str, SeenMark]] = {}
        for each in self._uses.all_seen():
            (name,) = each.target.names or ()
            seen.setdefault(key_meant(each.target), {})[name] = each.mark
        self._noted = {key: notes for key, notes in self._noted.items() if notes or key in seen}
        self._let_go([key for key in self._looked if key not in seen and key.handle_id not in here])
        if not (here or seen or self._noted):
            return None
        asked = [*here, *(key.handle_id for key in (*seen, *self._noted))]
        handles = map(self._service.handles.load, dict.fromkeys(asked))
        times = [
            self._see_to(handle, here.get(handle.id), seen.get(key_of(handle), {}))
            for handle in handles
            if handle is not None and handle.state == "held" and key_of(handle) in kept
        ]
        return earliest(*times)

    def _let_go(self, keys: Sequence[Key]) -> None:
        """Stop watching handles that no reclaim asks any more, if nothing else needs it."""
        if not keys:
            return
        with self._service.state.transaction():
            for key in keys:
                handle = self._service.handles.current(*key)
                if handle is not None:
                    self._uses.let_go(handle)
        for key in keys:
            del self._looked[key]

    def keep_only(self, known: Container[object]) -> None:
        super().keep_only(known)
        told = (self._noted, self._tried, self._looked, self._checked)
        for key in {key for by_key in told for key in by_key}:
            if key not in known:
                for by_key in told:
                    by_key.pop(key, None)

    def _see_to(
        self, handle: Handle, here: Sequence[Note] | None, seen: dict[str, SeenMark]
    ) -> float | None:
        """Answer for a handle if there may be something to answer; returns when it is due next."""
        key, now = key_of(handle), self._clock.elapsed()
        put_off = self._retries.put_off(key)
        if put_off is not None:
            return put_off
        due = self._due(key, seen.values(), now)
        notes = here or () if server_of(handle) is None else self._noted.get(key)
        is_asked = notes is not None and self._is_asked(handle, notes, seen)
        if not (is_asked or self._retries.at(key) is not None or (due is not None and now >= due)):
            return due
        rests_until = self._looked.get(key, now - _REST_SECONDS) + _REST_SECONDS
        if now < rests_until:
            return rests_until
        self._tried[key] = self._noted.pop(key, ())
        self._looked[key] = now
        self._checked.setdefault(key, {}).update(
            (mark.id, None) for mark in seen.values() if mark.is_ready
        )
        return self.attempt(whole(handle))

    def _due(self, key: Key, seen: Iterable[SeenMark], now: float) -> float | None:
        """When a mark ends, or its answer is overdue."""
        checked = self._checked.setdefault(key, {})
        times = [mark.ends_at for mark in seen]
        for mark in seen:
            if mark.is_ready:
                times += filter(None, [checked.setdefault(mark.id, now + _SENDING_SECONDS)])
        return earliest(*times)

    def _is_asked(self, handle: Handle, notes: Sequence[Note], seen: dict[str, SeenMark]) -> bool:
        if not notes and not seen:
            return False
        from leasectl.leases.marks import needs_answer

        is_ours = handle.request.on_reclaim != "answer"
        return needs_answer(notes, seen, self._clock.elapsed(), is_answered_here=is_ours)

    def _key(self, item: ReleaseTarget) -> Key:
        return key_meant(item)

    def _server(self, item: ReleaseTarget) -> Server | None:
        return server_of(self._service.handles.load(item.handle_id))

    def _do(self, service: Service, item: ReleaseTarget) -> tuple[str, ...]:
        return answered(service, item)

    def _succeeded(self, item: ReleaseTarget, result: tuple[str, ...], sent_at: float) -> float:
        self._tried.pop(key_meant(item), None)
        if result:
            self._log.write(f"answered for {item.handle_id}: {', '.join(result)}")
        return self._clock.elapsed()  # the next round reads the records again

    def _failed(self, item: ReleaseTarget, error: Exception) -> float:
        key = key_meant(item)
        notes = self._tried.pop(key, ())
        if notes:  # the only copy
            self._noted.setdefault(key, notes)
        return self._retries.failed(key, f"answer for {item.handle_id}", error)


def answered(service: Service, target: ReleaseTarget) -> tuple[str, ...]:
    """Answer for a holder; returns what was answered, for people."""
    from leasectl.leases.marks import answer_for_holder

    done = answer_for_holder(service, target, renews=True)
    return tuple(
        f"{name} {said or 'no longer has a reclaim request'}" for name, said in done.items()
    )
