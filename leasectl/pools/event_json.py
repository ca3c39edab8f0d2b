"""Events as JSON, an object each, as ``leasectl events --json`` writes them, a line each."""

from __future__ import annotations

import json

from leasectl.errors import CorruptState, InvalidRequest
from leasectl.state.event import Event, EventKind
from leasectl.system.clock import rfc3339
from leasectl.text.fields import MALFORMED, read_name, read_number, read_optional, read_text
from leasectl.text.moments import parse_moment
from leasectl.text.printable import printable
from leasectl.typed.hints import Any, cast, get_args


def encode_event(event: Event) -> dict[str, Any]:
    """Write an event; `parse_event` reads it back, but for less than a microsecond."""
    durations = {
        field: None if seconds is None else round(seconds, 6)
        for field, seconds in (
            ("wait_seconds", event.wait_seconds),
            ("hold_seconds", event.hold_seconds),
        )
    }
    return {**event._asdict(), "time": rfc3339(event.time), **durations}


def parse_event(line: str) -> Event:
    """Read one line.

    Raises:
        CorruptState: It is none that `encode_event` has written.
    """
    try:
        fields = json.loads(line)
        if fields["kind"] not in get_args(EventKind):
            raise ValueError("no such kind")
        return Event(
            number=int(fields["number"]),
            time=parse_moment(read_text(fields["time"]), 0.0),
            kind=cast("EventKind", fields["kind"]),
            type=read_name(fields["type"]),
            names=tuple(map(read_name, fields["names"])),
            fences=tuple(map(int, fields["fences"])),
            handle=read_text(fields["handle"]),
            acquisition=int(fields["acquisition"]),
            holder_identity=read_text(fields["holder_identity"]),
            count=int(fields["count"]),
            priority=int(fields["priority"]),
            ticket=int(fields["ticket"]),
            grant=int(fields["grant"]),
            wait_seconds=read_optional(read_number, fields["wait_seconds"]),
            hold_seconds=read_optional(read_number, fields["hold_seconds"]),
            by=read_text(fields["by"]),
            reason=read_text(fields["reason"]),
        )
    except (*MALFORMED, InvalidRequest) as error:
        raise CorruptState(f'"{printable(line)}" is no event ({error})') from error
