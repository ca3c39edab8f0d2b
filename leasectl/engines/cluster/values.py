"""Values under keys: one object for each subject.

A change is one write of its subject's object, guarded by the version with which that was read. If a
claim has to allow the change, the claim is checked after that reading, right before the write. So a
later holder of the claim that has changed the subject did so either before the reading, and then
the check finds that the claim isn't ours, or after it, and then the write is refused. A process
that gets the claim between our check and our write states the versions that it has read, and is
refused because they have changed.

The claim is given back after the write. A process that is killed before leaves the change and its
claim: its keeper gives the claim back, or the ttl ends it.

A content is announced in the subject's object before it is written, and removed after that object
marks it as to be removed. A process that is killed in between leaves an entry there, by which
`tidy` finds it. Nothing expires by itself here: a process tidies that has done a work, lists
results, or keeps a state directory. Times are compared by wall clocks, the writer's and the
reader's.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leasectl.engines.cluster.context import Context
from leasectl.engines.cluster.objects import (
    MOST_TRIES,
    Change,
    ContentObject,
    Found,
    Identity,
    ResourceObject,
    Said,
    Selection,
    Told,
    ValuesObject,
    new_word,
    too_fast,
)
from leasectl.engines.values import (
    CONTENT,
    Guard,
    Parts,
    Value,
    ValueChange,
    check_changes,
    is_content,
    parts_of,
)
from leasectl.errors import LeaseError

if TYPE_CHECKING:
    from leasectl.state.event import Event

_MOST_TIDIED = 20  # subjects, at a time
_TO_GO = 0.0


class ClusterValues:
    """The values in one place.

    Args:
        context: Of that place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._objects = context.objects
        self._claims = context.claims
        self._clock = context.clock

    @property
    def largest_content(self) -> int:
        return self._objects.largest_content

    # Reading

    def get(self, key: str) -> Value | None:
        said = self._said(key)
        return None if said is None else _value(key, said)

    def read(self, prefix: str) -> tuple[Value, ...]:
        space, slash, _ = prefix.partition("/")
        which = Selection(kinds=("values",), space=space if slash else None)
        values = []
        for each in self._objects.list(which).items:
            found = self._checked(each, each.id.name)
            for kind, said in found.said.items():
                key = _key(found, kind)
                if key.startswith(prefix) and not self._is_over(said.until):
                    values.append(_value(key, said))
        return tuple(sorted(values))

    def _said(self, key: str, subject: ValuesObject | None = None) -> Said | None:
        """Return what is kept under a key, unless its time is over.

        Args:
            key: Which.
            subject: All that is kept of its subject, if that was read; else None.
        """
        if is_content(key):
            content = self._content(key)
            said = None if content is None else content.said
        else:
            said = (subject or self._subject(key)).said.get(_kind(parts_of(key)))
        return None if said is None or self._is_over(said.until) else said

    def _is_over(self, until: float | None) -> bool:
        return until is not None and until <= self._clock.wall()

    def _subject(self, key: str) -> ValuesObject:
        """Return the object of a key's subject; one without a version if nothing is kept."""
        parts = parts_of(key)
        name = self._objects.name_of("values", parts.space, parts.subject)
        found = self._objects.read(name)
        if found is None:
            return ValuesObject(Identity(name), None, parts.space, parts.subject, {}, {})
        return self._checked(found, name)

    def _content(self, key: str) -> ContentObject | None:
        name = self._name_of_content(key)
        found = self._objects.read(name)
        if found is None or isinstance(found, ContentObject):
            return found
        raise self._objects.why_unreadable(name)

    def _name_of_content(self, key: str) -> str:
        parts = parts_of(key)
        return self._objects.name_of("content", parts.space, parts.subject, parts.word)

    def _checked(self, found: Found, name: str) -> ValuesObject:
        if not isinstance(found, ValuesObject):
            raise self._objects.why_unreadable(name)
        return found

    # Writing

    def change(
        self,
        changes: Sequence[ValueChange],
        *,
        guard: Guard | None = None,
        event: Event | None = None,
    ) -> bool:
        check_changes(changes)
        told = () if event is None else self._context.events.happened(event)
        held = None
        for _ in range(MOST_TRIES):
            found = self._subject(changes[0].key)
            if guard is not None:  # only now: see above
                held = self._held(guard)
                if held is None:
                    return False
            if not all(self._is_as_it_has_to_be(each, found) for each in changes):
                return False
            if self._write(found, self._after(changes, found), told):
                break
        else:
            raise too_fast(changes[0].key)
        for each in changes:
            if is_content(each.key) and each.content is not None:
                self._put_content(each.key, self._new(each))
        if held is not None and guard is not None and guard.frees:
            self._claims.release([held])
        return True

    def check_room(self) -> None:
        """The API server says so itself, with the change."""

    def tidy(self) -> None:
        with contextlib.suppress(LeaseError):
            tidied = 0
            for found in self._objects.list(Selection(kinds=("values",))).items:
                if isinstance(found, ValuesObject) and tidied < _MOST_TIDIED:
                    tidied += self._tidy(found)

    def _tidy(self, found: ValuesObject) -> bool:
        """Take away what is over of a subject; returns whether anything was."""
        said = {kind: each for kind, each in found.said.items() if not self._is_over(each.until)}
        contents = {
            word: _TO_GO if self._is_over(until) else until
            for word, until in found.contents.items()
        }
        if found.said and not said:
            contents = dict.fromkeys(contents, _TO_GO)
        new = found._replace(said=said, contents=contents)
        if new != found:
            self._write(found, new)
        elif _TO_GO in contents.values() or not (said or contents):
            self._clear(found)  # as whoever was killed at that was to do
        else:
            return False
        return True

    def _held(self, guard: Guard) -> ResourceObject | None:
        """The resource of the claim that allows a change; None where that isn't so any more."""
        resource = self._context.resource(guard.name)
        claim = None if resource is None else resource.claim
        if resource is None or claim is None or not self._claims.is_good(resource):
            return None
        is_it = claim.claim_key == self._context.with_state_id(guard.claim_key)
        return resource if is_it and claim.fence == guard.fence else None

    def _is_as_it_has_to_be(self, change: ValueChange, found: ValuesObject) -> bool:
        if change.version is None:
            return True
        said = self._said(change.key, found)
        return change.version == (0 if said is None else said.version)

    def _after(self, changes: Sequence[ValueChange], found: ValuesObject) -> ValuesObject:
        """Return what is kept of a subject after changes."""
        said = {kind: each for kind, each in found.said.items() if not self._is_over(each.until)}
        contents = dict(found.contents)
        for each in changes:
            parts = parts_of(each.key)
            if is_content(each.key):
                if each.content is not None or parts.word in contents:
                    contents[parts.word] = _TO_GO if each.content is None else self._until(each)
            elif each.content is None:
                said.pop(_kind(parts), None)
            else:
                said[_kind(parts)] = self._new(each)
        if found.said and not said:  # nothing tells of them any more
            new = [parts_of(each.key).word for each in changes if each.content is not None]
            contents = {word: until if word in new else _TO_GO for word, until in contents.items()}
        return found._replace(said=said, contents=contents)

    def _write(self, found: ValuesObject, new: ValuesObject, told: Sequence[Told] = ()) -> bool:
        """Write a subject, and tell of it; return whether it was as it was read."""
        seen = found if found.id.version else None
        if seen is None and not (new.said or new.contents):
            self._objects.tell(told)
            return True
        written = self._objects.write(Change(seen, new._replace(made=new_word()), told))
        is_clear = _TO_GO not in new.contents.values() and bool(new.said or new.contents)
        if written.object is not None and not is_clear:
            with contextlib.suppress(LeaseError):  # it is done, and what is to go is noted
                self._clear(self._checked(written.object, new.id.name))
        return written.is_done

    def _clear(self, found: ValuesObject) -> None:
        """Take away the contents that are to go, and then what tells of them."""
        kept = {word: until for word, until in found.contents.items() if until != _TO_GO}
        for word in found.contents:
            if word not in kept:
                content = self._content(f"{found.space}/{CONTENT}/{found.subject}/{word}")
                if content is not None:
                    self._objects.remove(content)
        if not kept and not found.said:
            self._objects.write(Change(found, None))
        elif kept != found.contents:
            new = found._replace(contents=kept, made=new_word())
            self._objects.write(Change(found, new))

    def _put_content(self, key: str, said: Said) -> None:
        """Write a content; its key has one writer."""
        first = ContentObject(Identity(self._name_of_content(key)), None, key, said)
        seen: ContentObject | None = None
        for _ in range(MOST_TRIES):
            new = first if seen is None else seen._replace(said=said)
            if self._objects.write(Change(seen, new)).is_done:
                return
            seen = self._content(key)
        raise too_fast(key)

    def _new(self, change: ValueChange) -> Said:
        assert change.content is not None
        version = 1 + secrets.randbelow(2**62)
        return Said(change.content, version, self._clock.wall(), self._until(change))

    def _until(self, change: ValueChange) -> float | None:
        keep = change.keep_seconds
        return None if keep is None else self._clock.wall() + keep


def _value(key: str, said: Said) -> Value:
    return Value(key, said.content, said.version, said.written_at)


def _kind(parts: Parts) -> str:
    """What is said, as the object of a subject has it."""
    return f"{parts.kind}/{parts.word}" if parts.word else parts.kind


def _key(found: ValuesObject, kind: str) -> str:
    said, _, word = kind.partition("/")
    key = f"{found.space}/{said}/{found.subject}"
    return f"{key}/{word}" if word else key
