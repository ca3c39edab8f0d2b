"""Post events in the background, and build and parse ``events.k8s.io/v1`` objects.

If an account may not post events, the first command of a state directory that finds it out says so
once. A file notes that, and no process tries for a while. A server that doesn't answer is left
alone for a moment, so that posting delays a command's end by less than a second.

What one step did is one object. If it was done to several resources, each has an object of its own.
The first has an annotation with a list, which `leasectl` reads; the others are only for people. The
limits are those of the API, which refuses longer texts:
https://github.com/kubernetes/kubernetes, pkg/apis/core/validation/events.go.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from leasectl.engines.cluster.objects import Told, stamp
from leasectl.engines.cluster.records import event_record, read_event
from leasectl.engines.kubernetes.api.address import events
from leasectl.engines.kubernetes.api.refusals import Conflict, is_not_permitted
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.encoding import annotations_of, identity_of
from leasectl.engines.kubernetes.names import DOMAIN, KIND, POOL, Json, label_of_type
from leasectl.engines.rules.events import how_ended
from leasectl.errors import LeaseError
from leasectl.state.event import Event
from leasectl.system.afterwards import begin as begin_afterwards
from leasectl.system.clock import Clock
from leasectl.system.own_files import open_own
from leasectl.text.durations import format_seconds
from leasectl.text.naming import as_given
from leasectl.text.properties import (
    MALFORMED,
    Malformed,
    read_json,
    read_name,
    read_number,
)
from leasectl.text.wording import counted, printable

# The value of the label by which those are found that have something to be read.
EVENT = "event"
# An event's number is that many times its object's resourceVersion, and its place in there.
NUMBERS_PER_VERSION = 1000
_EVENTS = DOMAIN + "events"
_CONTROLLER = "leasectl.dev/leasectl"
_LONGEST_INSTANCE = 128
_LONGEST_NOTE_BYTES = 1000
_LONGEST_NAME = 253
_RANDOM_BYTES = 8
# So many Leases are told of at once, each in an object of its own.
_MOST_ABOUT = 16
_LONGEST_SECONDS = 0.7
# A process that goes on tries again after that.
_REST_SECONDS = 10.0
# As does who may not, whether by now he may.
_TRY_AGAIN_SECONDS = 600.0
Work = Callable[[], object]


def encode_post(post: Told, namespace: str) -> list[dict[str, Any]]:
    """Write what a step did, as objects; `parse_post` reads the first of them back."""
    last = post.events[-1]
    is_loss = any(each.kind == "lost" for each in post.events)
    title = post.title or "".join(word.capitalize() for word in last.kind.split())
    rest: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": stamp(last.time),
        "reportingController": _CONTROLLER,
        "reportingInstance": os.uname().nodename[:_LONGEST_INSTANCE] or "-",
        "action": title,
        "reason": title,
        "type": "Warning" if is_loss or last.kind == "work failed" else "Normal",
        "note": _note(last),
    }
    made = []
    for number, each in enumerate(post.about[:_MOST_ABOUT]):
        meta: dict[str, Any] = {"name": _name(each.name), "namespace": namespace}
        if number == 0:
            labels = {KIND: EVENT, POOL: label_of_type(last.type)}
            meta = {**meta, "labels": labels, "annotations": {_EVENTS: _encode(post.events)}}
        regarding = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": namespace,
            "name": each.name,
            **({"uid": each.uid} if each.uid else {}),
        }
        made.append({**rest, "metadata": meta, "regarding": regarding})
    return made


def parse_post(raw: Json) -> list[Event]:
    """Return the events in an object; none if it isn't in leasectl's format."""
    version = identity_of(raw).version * NUMBERS_PER_VERSION
    try:
        records = read_json(annotations_of(raw)[_EVENTS])
        if not isinstance(records, list) or len(records) > NUMBERS_PER_VERSION:
            raise Malformed("events aren't a list")
        return [
            read_event(each, read_number, number=version + number, type=read_name(each["type"]))
            for number, each in enumerate(records)
        ]
    except MALFORMED:
        return []


def _encode(events: Sequence[Event]) -> str:
    return json.dumps([event_record(each, "number") for each in events], separators=(",", ":"))


def _name(object_name: str) -> str:
    """What an event is called, as nothing else ever: after its Lease, as all others are."""
    random = os.urandom(_RANDOM_BYTES).hex()
    begin = object_name[: _LONGEST_NAME - len(random) - 1].rstrip(".-")
    return f"{begin}.{random}"


def _note(event: Event) -> str:
    """What happened, for people; of a resource of several it is the same."""
    who = event.holder_identity or "somebody"
    reason = f": {event.reason}" if event.reason else ""
    names = ", ".join(map(as_given, event.names))
    if event.kind == "queued":
        text = f"{who} waits for {names or counted(event.count, 'resource')} of {event.type}"
    elif event.kind == "granted":
        text = f"{names} of {event.type} to {who}{_after(event.wait_seconds)}"
    elif event.kind == "gave up":
        text = f"{who} no longer waits{_after(event.wait_seconds)}{reason}"
    elif event.kind in ("released", "lost"):
        text = f"{names} of {who}{_after(event.hold_seconds)} {how_ended(event.by)}{reason}"
    else:
        text = f"{names or event.type} by {who}{reason}"
    # No more bytes than a note may have.
    encoded = printable(text, longest=_LONGEST_NOTE_BYTES).encode(errors="replace")
    return encoded[:_LONGEST_NOTE_BYTES].decode(errors="ignore")


def _after(seconds: float | None) -> str:
    return "" if seconds is None else f" after {format_seconds(max(0.0, seconds))}"


class Posting:
    """Sends the events of one namespace.

    Args:
        api: Of the cluster.
        namespace: Where.
        refused_path: Of the file that says that we may not; None for none.
        warn: Called with a line for people about that, once.
        begin: Starts a work in the background.
        longest_seconds: Sending one event is given up after that long.
        clock: Where times come from.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        refused_path: str | None = None,
        warn: Callable[[str], None] = lambda _: None,
        begin: Callable[[Work], object] = begin_afterwards,
        longest_seconds: float = _LONGEST_SECONDS,
        clock: Clock,
    ) -> None:
        self._api = api
        self._events = events(namespace)
        self._refused_path = refused_path
        self._warn = warn
        self._begin = begin
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._rests_until = 0.0

    def send(self, post: Told) -> None:
        """Send an event in the background; a failure has no consequences."""
        self._begin(partial(self._send, post))

    def _send(self, post: Told) -> None:
        now = self._clock.elapsed()
        age = self._refused_age()
        if now < self._rests_until or (age is not None and abs(age) < _TRY_AGAIN_SECONDS):
            return
        try:
            with self._api.limited(now + self._longest_seconds, is_strict=True):
                for body in encode_post(post, self._events.namespace):
                    with contextlib.suppress(Conflict):  # by the try before, whose answer was lost
                        self._api.create(self._events, body, is_repeatable=True)
        except LeaseError as failure:
            if is_not_permitted(failure):
                self._note_refused(failure)
                return
            self._rests_until = self._clock.elapsed() + _REST_SECONDS
        else:
            if self._refused_path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._refused_path)

    # Whether we may

    def _refused_age(self) -> float | None:
        """Return the seconds since we were refused; None if we weren't."""
        if self._refused_path is None:
            return None
        try:
            return time.time() - os.stat(self._refused_path).st_mtime
        except OSError:
            return None

    def _note_refused(self, refusal: LeaseError) -> None:
        self._rests_until = self._clock.elapsed() + _TRY_AGAIN_SECONDS
        is_new = self._refused_age() is None
        if self._refused_path is not None:
            with contextlib.suppress(OSError):
                os.close(open_own(self._refused_path, os.O_WRONLY | os.O_CREAT))
                os.utime(self._refused_path)
        if is_new:
            self._warn(f"leases work, but no events are written: {refusal}")
