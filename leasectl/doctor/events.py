"""The record of what happened: how much of it there is, and whether it goes on."""

from __future__ import annotations

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.state.directory import State
from leasectl.state.event_log import kept, refusal
from leasectl.system.clock import rfc3339
from leasectl.text.wording import counted


def events(state: State) -> Finding:
    """Are events written, and since when are there any?"""
    count, since = kept(state)
    what = f"{counted(count, 'event')} since {rfc3339(since)}" if count else "no events yet"
    why_not = refusal(state)
    if why_not:
        return Finding(
            WARN,
            f"{what}; further ones can't be written ({why_not})",
            "leases go on without; nobody will be able to tell what happened to them",
        )
    return Finding(OK, what)
