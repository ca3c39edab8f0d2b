"""Values under keys: an object for each.

A change is the one write of its subject's object, guarded by the resourceVersion with which that
was read. Where a claim has to allow it, that is looked at after the reading and right before the
write: so whoever has it since, and has changed anything of the subject, was there before that
reading, and then the claim isn't ours, or after it, and then the write is refused. Who comes to
have it between our look and our write finds, where it says which versions it has read, that these
aren't those any more.

The claim is given back after that. Killed before, its process leaves what was changed, and a claim
that is its own still: its keeper gives that back, or the ttl ends it.

A content is announced in the subject's object before it is made, and taken away after that says
that it is to go. Killed in between, its process leaves an entry there, by which `tidy` finds it.
Nothing goes by itself here: a process that has done a work, lists results, or keeps a state
directory tidies. How long is told by wall clocks, of who wrote it and of who looks.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leasectl.engines.cluster.changes import with_values
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
        parts = parts_of(key)
        if is_content(key):
            content = self._content(key)
            return None if content is None else self._value(key, content.said)
        found = self._find(parts)
        said = None if found is None else found.said.get(_kind(parts))
        return None if said is None else self._value(key, said)

    def read(self, prefix: str) -> tuple[Value, ...]:
        space, slash, _ = prefix.partition("/")
        values = []
        for found in self._all(space if slash else None):
            for kind, said in found.said.items():
                key = _key(found, kind)
                value = self._value(key, said) if key.startswith(prefix) else None
                if value is not None:
                    values.append(value)
        return tuple(sorted(values))

    def _value(self, key: str, said: Said) -> Value | None:
        if self._is_over(said.until):
            return None
        return Value(key, said.content, said.version, said.written_at)

    def _is_over(self, until: float | None) -> bool:
        return until is not None and until <= self._clock.wall()

    def _find(self, parts: Parts) -> ValuesObject | None:
        name = self._objects.name_of("values", parts.space, parts.subject)
        found = self._objects.read(name)
        return None if found is None else self._checked(found, name)

    def _content(self, key: str) -> ContentObject | None:
        name = self._name_of_content(key)
        found = self._objects.read(name)
        if found is None or isinstance(found, ContentObject):
            return found
        raise self._objects.why_unreadable(name)

    def _name_of_content(self, key: str) -> str:
        parts = parts_of(key)
        return self._objects.name_of("content", parts.space, parts.subject, parts.word)

    def _all(self, space: str | None) -> list[ValuesObject]:
        found = self._objects.list(Selection(kinds=("values",), space=space)).items
        return [self._checked(each, each.id.name) for each in found]

    def _checked(self, found: Found | None, name: str) -> ValuesObject:
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
            found = self._find(parts_of(changes[0].key))
            if guard is not None:  # only now: see above
                held = self._held(guard)
                if held is None:
                    return False
            if not self._are_as_they_have_to_be(changes, found):
                return False
            said, contents = self._after(changes, found)
            if self._write(changes, found, said, contents, told):
                break
        else:
            raise too_fast(changes[0].key)
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
        if (said, contents) != (found.said, found.contents):
            self._put(found, Parts(found.space, "", found.subject), said, contents)
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

    def _are_as_they_have_to_be(
        self, changes: Sequence[ValueChange], found: ValuesObject | None
    ) -> bool:
        return all(
            each.version is None or each.version == self._version(each.key, found)
            for each in changes
        )

    def _version(self, key: str, found: ValuesObject | None) -> int:
        """Which version is kept under a key; 0 for none."""
        if is_content(key):
            content = self._content(key)
            said = None if content is None else content.said
        else:
            said = None if found is None else found.said.get(_kind(parts_of(key)))
        return 0 if said is None or self._is_over(said.until) else said.version

    def _after(
        self, changes: Sequence[ValueChange], found: ValuesObject | None
    ) -> tuple[dict[str, Said], dict[str, float | None]]:
        """What is kept of a subject after changes, and which contents there are then."""
        before = {} if found is None else found.said
        said = {kind: each for kind, each in before.items() if not self._is_over(each.until)}
        contents = {} if found is None else dict(found.contents)
        for each in changes:
            parts = parts_of(each.key)
            if is_content(each.key):
                if each.content is not None or parts.word in contents:
                    contents[parts.word] = _TO_GO if each.content is None else self._until(each)
            elif each.content is None:
                said.pop(_kind(parts), None)
            else:
                said[_kind(parts)] = self._said(each)
        if before and not said:  # nothing tells of them any more
            new = [parts_of(each.key).word for each in changes if each.content is not None]
            contents = {word: until if word in new else _TO_GO for word, until in contents.items()}
        return said, contents

    def _write(
        self,
        changes: Sequence[ValueChange],
        found: ValuesObject | None,
        said: Mapping[str, Said],
        contents: Mapping[str, float | None],
        told: Sequence[Told],
    ) -> bool:
        """Write a subject, and tell of it; return whether it was as it was read."""
        parts = parts_of(changes[0].key)
        if found is None and not said and not contents:
            self._objects.tell(told)
        elif not self._put(found, parts, said, contents, told):
            return False
        for each in changes:
            if is_content(each.key) and each.content is not None:
                self._put_content(each.key, self._said(each))
        return True

    def _put(
        self,
        found: ValuesObject | None,
        parts: Parts,
        said: Mapping[str, Said],
        contents: Mapping[str, float | None],
        told: Sequence[Told] = (),
    ) -> bool:
        """Write the object of a subject; returns whether it was as it was read."""
        name = self._objects.name_of("values", parts.space, parts.subject)
        new = with_values(found, name, parts, said, contents)
        written = self._objects.write(Change(found, new, told))
        is_clear = _TO_GO not in contents.values() and bool(said or contents)
        if written.object is not None and not is_clear:
            with contextlib.suppress(LeaseError):  # it is done, and what is to go is noted
                self._clear(self._checked(written.object, name))
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
            parts = Parts(found.space, "", found.subject)
            new = with_values(found, found.id.name, parts, found.said, kept)
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

    def _said(self, change: ValueChange) -> Said:
        assert change.content is not None
        version = 1 + secrets.randbelow(2**62)
        return Said(change.content, version, self._clock.wall(), self._until(change))

    def _until(self, change: ValueChange) -> float | None:
        keep = change.keep_seconds
        return None if keep is None else self._clock.wall() + keep


def _kind(parts: Parts) -> str:
    """What is said, as the object of a subject has it."""
    return f"{parts.kind}/{parts.word}" if parts.word else parts.kind


def _key(found: ValuesObject, kind: str) -> str:
    said, _, word = kind.partition("/")
    key = f"{found.space}/{said}/{found.subject}"
    return f"{key}/{word}" if word else key
